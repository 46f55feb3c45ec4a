//! Which parts of JSON Schemas apply to a value, so far as that matters for what may be shown.
//!
//! Nothing is validated here: of alternatives all apply, so that what is marked in one of them is
//! hidden. References are followed within the document; what cannot be resolved counts as marked.

use std::sync::Arc;

use serde_json::Value;

/// The keyword that marks.
const MARK: &str = "x-sensitive";

/// Keywords with one schema that applies to the same value.
const SAME: [&str; 3] = ["if", "then", "else"];
/// Keywords with a list of them.
const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Whether somebody marked anything in a schema, as sensitive or not.
pub(super) fn has_mark(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) => {
            keywords.get(MARK).is_some_and(Value::is_boolean) || keywords.values().any(has_mark)
        }
        Value::Array(items) => items.iter().any(has_mark),
        _ => false,
    }
}

/// Whether a schema names a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Described {
    Yes,
    No,
}

/// A schema that applies, with the document that it is in.
#[derive(Clone, Copy)]
struct Node<'s> {
    document: &'s Value,
    schema: &'s Value,
    /// It says what the value is, and does not only mark it.
    describes: bool,
}

/// The schemas that apply to a value.
pub(super) struct Nodes<'s> {
    nodes: Vec<Node<'s>>,
    is_unresolved: bool,
}

impl<'s> Nodes<'s> {
    pub(super) fn roots(schemas: &'s [Arc<Value>]) -> Self {
        Self::expanded(schemas.iter().map(|schema| Node {
            document: schema,
            schema,
            describes: true,
        }))
    }

    /// With all that the given ones refer to.
    fn expanded(nodes: impl Iterator<Item = Node<'s>>) -> Self {
        let mut found = Self {
            nodes: Vec::new(),
            is_unresolved: false,
        };
        for node in nodes {
            found.expand(node);
        }
        found
    }

    fn expand(&mut self, node: Node<'s>) {
        let Value::Object(keywords) = node.schema else {
            // `true` and `false` say nothing about what it is.
            return;
        };
        let is_same = |known: &Node<'_>| {
            std::ptr::eq(known.schema, node.schema) && known.describes == node.describes
        };
        if self.nodes.iter().any(is_same) {
            return;
        }
        self.nodes.push(node);
        for keyword in ["$ref", "$dynamicRef"] {
            match keywords.get(keyword).map(|of| resolve(node.document, of)) {
                Some(Some(schema)) => self.expand(Node { schema, ..node }),
                Some(None) => self.is_unresolved = true,
                None => {}
            }
        }
        let same = SAME.iter().filter_map(|keyword| keywords.get(*keyword));
        let lists = SAME_LISTS.iter().filter_map(|keyword| {
            let list = keywords.get(*keyword)?.as_array()?;
            Some(list.iter())
        });
        let dependent = keywords.get("dependentSchemas").and_then(Value::as_object);
        let dependent = dependent.into_iter().flat_map(|of| of.values());
        for schema in same.chain(lists.flatten()).chain(dependent) {
            self.expand(Node { schema, ..node });
        }
    }

    pub(super) fn are_sensitive(&self) -> bool {
        let is_marked = |node: &Node<'_>| node.schema.get(MARK) == Some(&Value::Bool(true));
        self.is_unresolved || self.nodes.iter().any(is_marked)
    }

    pub(super) fn are_described(&self) -> bool {
        self.nodes.iter().any(|node| node.describes)
    }

    /// What applies to a member of an object.
    pub(super) fn member(&self, name: &str) -> (Self, Described) {
        let mut inside = Vec::new();
        for node in &self.nodes {
            let named = node.schema.get("properties").and_then(|of| of.get(name));
            if let Some(schema) = named {
                inside.push(Node { schema, ..*node });
            }
            // Which names a pattern means is not looked at: it marks, and describes nothing.
            let patterns = node.schema.get("patternProperties");
            let patterns = patterns.and_then(Value::as_object);
            for schema in patterns.into_iter().flat_map(|of| of.values()) {
                inside.push(Node {
                    schema,
                    describes: false,
                    ..*node
                });
            }
            let others = ["additionalProperties", "unevaluatedProperties"];
            let others = others.iter().filter_map(|of| node.schema.get(*of));
            for schema in others.filter(|_| named.is_none()) {
                inside.push(Node { schema, ..*node });
            }
        }
        let names = self.nodes.iter().filter_map(|node| {
            let schema = node.schema.get("propertyNames")?;
            Some(Node { schema, ..*node })
        });
        let has_secret_names = Self::expanded(names).are_sensitive();
        let inside = Self::expanded(inside.into_iter());
        let is_described = inside.are_described() || inside.is_unresolved;
        let described = match is_described && !has_secret_names {
            true => Described::Yes,
            false => Described::No,
        };
        (inside, described)
    }

    /// What applies to an element of an array.
    pub(super) fn item(&self, index: usize) -> Self {
        let mut inside = Vec::new();
        for node in &self.nodes {
            let lists = ["prefixItems", "items"];
            let lists = lists.iter().filter_map(|of| node.schema.get(*of));
            let at = lists
                .filter_map(Value::as_array)
                .map(|list| list.get(index));
            let places: Vec<Option<&Value>> = at.collect();
            inside.extend(
                places
                    .iter()
                    .flatten()
                    .map(|schema| Node { schema, ..*node }),
            );
            let is_placed = places.iter().any(Option::is_some);
            let others = ["items", "additionalItems", "unevaluatedItems"];
            let others = others.iter().filter_map(|of| node.schema.get(*of));
            for schema in others.filter(|schema| !is_placed && schema.is_object()) {
                inside.push(Node { schema, ..*node });
            }
            inside.extend(node.schema.get("contains").map(|schema| Node {
                schema,
                describes: false,
                ..*node
            }));
        }
        Self::expanded(inside.into_iter())
    }
}

/// The schema that a reference names, within its document.
fn resolve<'s>(document: &'s Value, reference: &Value) -> Option<&'s Value> {
    let fragment = reference.as_str()?.strip_prefix('#')?;
    if fragment.is_empty() || fragment.starts_with('/') {
        return document.pointer(&percent_decoded(fragment)?);
    }
    anchored(document, fragment)
}

/// The schema with an anchor's name.
fn anchored<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    match schema {
        Value::Object(keywords) => {
            let anchors = ["$anchor", "$dynamicAnchor"];
            let mut names = anchors.iter().filter_map(|of| keywords.get(*of));
            if names.any(|anchor| anchor == name) {
                return Some(schema);
            }
            keywords.values().find_map(|inner| anchored(inner, name))
        }
        Value::Array(items) => items.iter().find_map(|inner| anchored(inner, name)),
        _ => None,
    }
}

/// A fragment's characters, where it is a part of a URI.
fn percent_decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}
