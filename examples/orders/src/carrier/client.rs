//! The consumer's view of the carrier: what each answer, and each silence, means.

use std::path::PathBuf;
use std::time::Duration;

use onceward::{Failure, Probe};
use reqwest::{RequestBuilder, StatusCode};
use serde::{Deserialize, Serialize};

use super::server::BookingRequest;
use crate::message::OrderAccepted;
use crate::service::IDEMPOTENCY_KEY;

/// Where the carrier is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarrierAddress {
    /// At `http://host:port`.
    Fixed(String),
    /// In a file that holds `host:port` and changes when the carrier is started again.
    InFile(PathBuf),
}

impl CarrierAddress {
    async fn base(&self) -> Result<String, Failure> {
        match self {
            Self::Fixed(url) => Ok(url.trim_end_matches('/').to_owned()),
            Self::InFile(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(format!("http://{}", text.trim())),
                Err(error) => {
                    let text = "nobody has said where the carrier is";
                    Err(Failure::transient("carrier_away", text).with_source(error))
                }
            },
        }
    }
}

/// A booking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booking {
    /// The carrier's number.
    pub booking: String,
}

/// What the carrier said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarrierAnswer {
    /// It is booked.
    Booked(Booking),
    /// It never will be, for this reason.
    Refused(String),
}

/// Talks to the carrier.
#[derive(Clone, Debug)]
pub struct CarrierClient {
    http: reqwest::Client,
    address: CarrierAddress,
}

#[derive(Deserialize)]
struct Found {
    operation: String,
    booking: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    reason: String,
}

impl CarrierClient {
    /// A client that waits `timeout_ms` milliseconds for an answer.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(address: CarrierAddress, timeout_ms: u64) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_millis(timeout_ms))
            .no_proxy()
            .build()?;
        Ok(Self { http, address })
    }

    /// Asks for a booking, with the operation as idempotency key.
    ///
    /// # Errors
    /// Ambiguous when the carrier may have booked without saying so.
    pub async fn book(
        &self,
        operation: &str,
        order: &OrderAccepted,
    ) -> Result<CarrierAnswer, Failure> {
        let url = format!("{}/bookings", self.address.base().await?);
        let request = BookingRequest {
            order_id: order.order_id.clone(),
            address: order.address.clone(),
        };
        let request = self.http.post(url).json(&request);
        let (status, body) = send(request.header(IDEMPOTENCY_KEY, operation)).await?;
        match status {
            StatusCode::OK | StatusCode::CREATED => match serde_json::from_slice::<Found>(&body) {
                Ok(Found {
                    operation: booked_for,
                    booking: Some(booking),
                }) if booked_for == operation => Ok(CarrierAnswer::Booked(Booking { booking })),
                _ => Err(unreadable()),
            },
            StatusCode::UNPROCESSABLE_ENTITY => {
                let refusal: Refusal = serde_json::from_slice(&body).map_err(|_| unreadable())?;
                Ok(CarrierAnswer::Refused(refusal.reason))
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                let text = "the carrier is busy and has done nothing";
                Err(Failure::transient("carrier_busy", text))
            }
            status if status.is_server_error() => Err(unreadable()),
            status => {
                let text = format!("the carrier does not understand the request: {status}");
                Err(Failure::transient("carrier_odd", text))
            }
        }
    }

    /// Asks what became of an operation.
    ///
    /// # Errors
    /// When the carrier does not answer.
    pub async fn find(&self, operation: &str) -> Result<Probe<CarrierAnswer>, Failure> {
        let url = format!("{}/bookings/{operation}", self.address.base().await?);
        let (status, body) = send(self.http.get(url)).await?;
        // Only the carrier itself repeats the operation: some other server's 404 proves nothing.
        let found: Found = serde_json::from_slice(&body).map_err(|_| unreadable())?;
        if found.operation != operation {
            return Err(unreadable());
        }
        match (status, found.booking) {
            (StatusCode::OK, Some(booking)) => {
                Ok(Probe::Happened(CarrierAnswer::Booked(Booking { booking })))
            }
            (StatusCode::NOT_FOUND, None) => Ok(Probe::DidNotHappen),
            _ => Err(unreadable()),
        }
    }
}

async fn send(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), Failure> {
    let answered = async {
        let response = request.send().await?;
        let status = response.status();
        Ok((status, response.bytes().await?.to_vec()))
    };
    answered.await.map_err(|error: reqwest::Error| {
        if error.is_connect() {
            let text = "the carrier cannot be reached: nothing was sent";
            return Failure::transient("carrier_away", text).with_source(error);
        }
        let text = "the carrier did not answer: it may have booked";
        Failure::ambiguous("carrier_silent", text).with_source(error)
    })
}

fn unreadable() -> Failure {
    let text = "the carrier's answer cannot be read: it may have booked";
    Failure::ambiguous("carrier_unclear", text)
}
