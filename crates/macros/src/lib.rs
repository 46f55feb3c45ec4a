//! The derive for Onceward messages. Use it through the facade: `onceward::Message`.
//!
//! | module | what is in it |
//! |---|---|
//! | `attribute` | the settings inside `#[message(...)]`, with faults in their place |
//! | `expand` | the code that is made of them |

mod attribute;
mod expand;

use proc_macro::TokenStream;

/// Implements `Message` for a struct with named fields.
///
/// ```ignore
/// #[derive(Serialize, Deserialize, Message)]
/// #[message(type = "order.accepted", version = 1, key = order_id, operation = checkout_id)]
/// struct OrderAccepted { order_id: String, checkout_id: String }
/// ```
///
/// | setting | meaning |
/// |---|---|
/// | `type = "..."` | the CloudEvents `type`; required |
/// | `key = field` | the ordering key, written as aggregate id; required |
/// | `version = n` | version of the payload's schema, from 1; 1 by default |
/// | `aggregate = "..."` | aggregate type; by default the part of `type` before the first dot |
/// | `operation = field` | the business operation; by default the message id |
/// | `partition_key = field` | the ordering key, where order does not follow the aggregate |
/// | `aggregate_version = field` | version of the aggregate: any integer that fits `i64` losslessly |
/// | `crate = "path"` | where `Message` is found; `::onceward::core` by default |
///
/// A field may be a path into nested structs (`address.id`). Values become text by `ToString`.
#[proc_macro_derive(Message, attributes(message))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    expand::expand(input.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
