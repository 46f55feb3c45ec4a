//! What a client sends to the order service.

use serde::{Deserialize, Serialize};

use crate::message::{Address, OrderAccepted};

/// Longest checkout id, in bytes.
pub const CHECKOUT_ID_BYTES_MAX: usize = 100;
/// Longest city or street, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 200;

/// A request for an order, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// The client's own name for what it wants.
    pub checkout_id: String,
    /// Where to.
    pub address: Address,
}

/// What is wrong with a request, with a JSON pointer to the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at {pointer:?})")]
pub struct RequestFault {
    /// JSON pointer; empty for the whole.
    pub pointer: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl RequestFault {
    fn at(pointer: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { pointer, message }
    }
}

impl OrderRequest {
    /// Reads and checks a request.
    ///
    /// # Errors
    /// When it is no JSON, misses something, or has something odd.
    pub fn parse(body: &[u8]) -> Result<Self, RequestFault> {
        let request: Self = serde_json::from_slice(body).map_err(|error| {
            let text = format!("this is no order: {error}");
            RequestFault::at("", text)
        })?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), RequestFault> {
        if !is_checkout_id(&self.checkout_id) {
            let text = format!(
                "a checkout id has 1 to {CHECKOUT_ID_BYTES_MAX} letters, digits and . _ : ~ -, \
                 and begins with a letter or a digit"
            );
            return Err(RequestFault::at("/checkout_id", text));
        }
        let Address {
            country,
            city,
            street,
        } = &self.address;
        if country.len() != 2 || !country.bytes().all(|b| b.is_ascii_uppercase()) {
            let text = "a country is two capital letters, like \"DE\"";
            return Err(RequestFault::at("/address/country", text));
        }
        for (pointer, text) in [("/address/city", city), ("/address/street", street)] {
            if text.trim().is_empty() || text.len() > ADDRESS_BYTES_MAX || text.contains('\0') {
                let text = format!("a text of 1 to {ADDRESS_BYTES_MAX} bytes without NUL");
                return Err(RequestFault::at(pointer, text));
            }
        }
        Ok(())
    }

    /// The order that it becomes.
    #[must_use]
    pub fn accepted_as(self, order_id: String) -> OrderAccepted {
        OrderAccepted {
            order_id,
            checkout_id: self.checkout_id,
            address: self.address,
        }
    }
}

/// The id is used in addresses and headers as it is.
fn is_checkout_id(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._:~-".contains(&b);
    text.len() <= CHECKOUT_ID_BYTES_MAX
        && text.bytes().all(is_plain)
        && text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(checkout_id: &str, country: &str, city: &str) -> Result<OrderRequest, RequestFault> {
        let body = serde_json::json!({
            "checkout_id": checkout_id,
            "address": { "country": country, "city": city, "street": "Kai 1" },
        });
        OrderRequest::parse(body.to_string().as_bytes())
    }

    #[test]
    fn a_good_request_becomes_an_order() {
        let order = with("checkout-284", "DE", "20457 Hamburg").unwrap();
        let order = order.accepted_as("ord-731".into());
        assert_eq!(
            (order.order_id.as_str(), order.checkout_id.as_str()),
            ("ord-731", "checkout-284")
        );
    }

    #[test]
    fn what_is_odd_is_named_with_its_place() {
        let place = |result: Result<OrderRequest, RequestFault>| result.unwrap_err().pointer;
        for id in ["", "..", "a/b", "a b", "é", &"x".repeat(101)] {
            assert_eq!(place(with(id, "DE", "x")), "/checkout_id", "{id:?}");
        }
        for country in ["", "de", "DEU"] {
            assert_eq!(place(with("a", country, "x")), "/address/country");
        }
        for city in ["", " ", "a\0b", &"x".repeat(201)] {
            assert_eq!(place(with("a", "DE", city)), "/address/city");
        }
        for body in ["", "[]", "{}", r#"{"checkout_id":"a","checkout_id":"b"}"#] {
            assert_eq!(place(OrderRequest::parse(body.as_bytes())), "", "{body}");
        }
    }
}
