//! The settings inside `#[message(...)]`.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Ident, LitInt, LitStr, Path, Result, Token};

const SETTINGS: &str =
    "type, version, key, operation, partition_key, aggregate_version, aggregate or crate";

/// A field, or a path into nested structs.
pub(crate) type FieldPath = Punctuated<Ident, Token![.]>;

/// All settings of one message type.
pub(crate) struct Settings {
    pub(crate) message_type: LitStr,
    pub(crate) version: i32,
    pub(crate) aggregate: String,
    pub(crate) key: FieldPath,
    pub(crate) operation: Option<FieldPath>,
    pub(crate) partition_key: Option<FieldPath>,
    pub(crate) aggregate_version: Option<FieldPath>,
    pub(crate) path: Path,
}

impl Settings {
    /// Reads the one `#[message(...)]` among the attributes of `name`.
    pub(crate) fn read(name: &Ident, attributes: &[Attribute]) -> Result<Self> {
        let mut found = attributes.iter().filter(|a| a.path().is_ident("message"));
        let Some(attribute) = found.next() else {
            let text = "write #[message(type = \"...\", key = field)] above the struct";
            return Err(Error::new(name.span(), text));
        };
        if let Some(second) = found.next() {
            return Err(Error::new_spanned(
                second,
                "#[message(...)] is given twice: put all settings into one",
            ));
        }
        let given =
            attribute.parse_args_with(Punctuated::<Setting, Token![,]>::parse_terminated)?;
        collect(attribute, given)
    }
}

fn collect(attribute: &Attribute, given: Punctuated<Setting, Token![,]>) -> Result<Settings> {
    let (mut message_type, mut version, mut aggregate, mut path) = (None, None, None, None);
    let (mut key, mut operation, mut partition_key, mut aggregate_version) =
        (None, None, None, None);
    for Setting { name, value } in given {
        let is_repeated = match value {
            Value::Type(text) => message_type.replace(text).is_some(),
            Value::Version(number) => version.replace(number).is_some(),
            Value::Aggregate(text) => aggregate.replace(text.value()).is_some(),
            Value::Crate(found) => path.replace(found).is_some(),
            Value::Key(field) => key.replace(field).is_some(),
            Value::Operation(field) => operation.replace(field).is_some(),
            Value::PartitionKey(field) => partition_key.replace(field).is_some(),
            Value::AggregateVersion(field) => aggregate_version.replace(field).is_some(),
        };
        if is_repeated {
            return Err(Error::new(name.span(), format!("{name} is given twice")));
        }
    }
    let missing = |what: &str| Error::new_spanned(attribute, format!("{what} is missing"));
    let message_type = message_type.ok_or_else(|| missing("type = \"...\""))?;
    let key = key.ok_or_else(|| missing("key = field (messages of one key keep their order)"))?;
    let aggregate = aggregate.unwrap_or_else(|| {
        let text = message_type.value();
        text.split('.').next().unwrap_or_default().to_owned()
    });
    Ok(Settings {
        message_type,
        version: version.unwrap_or(1),
        aggregate,
        key,
        operation,
        partition_key,
        aggregate_version,
        path: path.unwrap_or_else(|| syn::parse_quote!(::onceward::core)),
    })
}

struct Setting {
    name: Ident,
    value: Value,
}

enum Value {
    Type(LitStr),
    Version(i32),
    Aggregate(LitStr),
    Crate(Path),
    Key(FieldPath),
    Operation(FieldPath),
    PartitionKey(FieldPath),
    AggregateVersion(FieldPath),
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        // `type` and `crate` are keywords.
        let name = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        let value = match name.to_string().as_str() {
            "type" => Value::Type(name_literal(input)?),
            "version" => Value::Version(version(input)?),
            "aggregate" => Value::Aggregate(name_literal(input)?),
            "crate" => Value::Crate(input.parse::<LitStr>()?.parse()?),
            "key" => Value::Key(field(input)?),
            "operation" => Value::Operation(field(input)?),
            "partition_key" => Value::PartitionKey(field(input)?),
            "aggregate_version" => Value::AggregateVersion(field(input)?),
            other => {
                let text = format!("{other} is not a setting: use {SETTINGS}");
                return Err(Error::new(name.span(), text));
            }
        };
        Ok(Self { name, value })
    }
}

fn field(input: ParseStream<'_>) -> Result<FieldPath> {
    FieldPath::parse_separated_nonempty(input)
}

/// Names travel in headers, SQL and metrics, so the contract's rule for names holds here too.
fn name_literal(input: ParseStream<'_>) -> Result<LitStr> {
    let literal: LitStr = input.parse()?;
    let text = literal.value();
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"._-/:+".contains(&b);
    if text.is_empty() || text.len() > 200 || !text.bytes().all(is_good) {
        return Err(Error::new(
            literal.span(),
            "not a name: 1 to 200 letters, digits and . _ - / : + are allowed",
        ));
    }
    Ok(literal)
}

fn version(input: ParseStream<'_>) -> Result<i32> {
    let literal: LitInt = input.parse()?;
    let number: i32 = literal.base10_parse()?;
    if number < 1 {
        return Err(Error::new(literal.span(), "versions count from 1"));
    }
    Ok(number)
}
