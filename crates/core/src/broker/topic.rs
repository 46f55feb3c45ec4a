//! Which topic a message goes to.

use crate::envelope::Envelope;

/// Why a template of a topic cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// Nothing in it.
    #[error("a topic must not be empty")]
    Empty,
    /// A brace without its partner.
    #[error("a {{ or }} stands alone: placeholders are written as {{aggregatetype}}")]
    Brace,
    /// A name that no placeholder has.
    #[error(
        "{{{0}}} is no placeholder: there are {{aggregatetype}}, {{type}}, {{subject}} and {{key}}"
    )]
    Placeholder(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    AggregateType,
    Type,
    Subject,
    Key,
}

/// A template of topics: text with placeholders `{aggregatetype}`, `{type}`, `{subject}` (the
/// aggregate id) and `{key}`, each of them replaced by the message's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pieces: Vec<Piece>,
}

impl Topic {
    /// Reads a template.
    ///
    /// # Errors
    /// [`TopicError`].
    pub fn parse(template: &str) -> Result<Self, TopicError> {
        let mut pieces = Vec::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let (text, tail) = rest.split_at(at);
            let name = tail.strip_prefix('{').and_then(|tail| tail.split_once('}'));
            let (name, tail) = name.ok_or(TopicError::Brace)?;
            if !text.is_empty() {
                pieces.push(Piece::Text(text.to_owned()));
            }
            pieces.push(match name {
                "aggregatetype" => Piece::AggregateType,
                "type" => Piece::Type,
                "subject" => Piece::Subject,
                "key" => Piece::Key,
                other if other.contains('{') => return Err(TopicError::Brace),
                other => return Err(TopicError::Placeholder(other.to_owned())),
            });
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        if pieces.is_empty() {
            return Err(TopicError::Empty);
        }
        Ok(Self { pieces })
    }

    /// The topic of a message.
    #[must_use]
    pub fn of(&self, envelope: &Envelope) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::AggregateType => &envelope.aggregate_type,
            Piece::Type => &envelope.message_type,
            Piece::Subject => &envelope.aggregate_id,
            Piece::Key => envelope.key(),
        });
        pieces.collect()
    }

    /// The topic, where it is the same for every message.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }
}

/// By aggregate type, as the outbox says.
impl Default for Topic {
    fn default() -> Self {
        Self {
            pieces: vec![Piece::AggregateType],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;

    fn message() -> Envelope {
        Envelope::new(
            "m",
            "order",
            "o-7",
            "order.accepted",
            Payload::Json("1".into()),
        )
    }

    #[test]
    fn placeholders_become_the_messages_own() {
        let topic = |text: &str| Topic::parse(text).unwrap().of(&message());
        assert_eq!(
            topic("shop.{aggregatetype}.{type}"),
            "shop.order.order.accepted"
        );
        assert_eq!(topic("{key}/{subject}"), "o-7/o-7");
        assert_eq!(topic("plain"), "plain");
        assert_eq!(Topic::default().of(&message()), "order");
        assert_eq!(Topic::parse("plain").unwrap().fixed(), Some("plain"));
        assert_eq!(Topic::parse("a{type}").unwrap().fixed(), None);
    }

    #[test]
    fn what_is_no_template_is_refused() {
        assert_eq!(Topic::parse(""), Err(TopicError::Empty));
        for alone in ["a{b", "a}b", "{", "}{type}", "{a{type}}"] {
            assert_eq!(Topic::parse(alone), Err(TopicError::Brace), "{alone}");
        }
        let unknown = Topic::parse("x.{tpye}").unwrap_err();
        assert!(
            unknown.to_string().starts_with("{tpye} is no placeholder"),
            "{unknown}"
        );
    }
}
