//! `POST /v1/quarantine/{id}/{action}`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_core::store::{ActOnCase, Actor, CaseAction, CaseState, StoreErrorKind};
use onceward_core::{Payload, Timestamp};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{desk, no_case, now, one_case, store_failed, unreadable};
use crate::access::{Caller, Scope};
use crate::code::Code;
use crate::messages::read;
use crate::problem::Problem;
use crate::view::{CaseView, Revealed};
use crate::{Console, guard};

/// What a request says. Each action takes some of it, and refuses the rest.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    /// Why.
    why: Option<String>,
    /// The state in which the case was seen: found in another one, it is left alone.
    expected: Option<CaseState>,
    /// `assign`: who is responsible; nobody, when it is null or absent.
    owner: Option<String>,
    /// `due`: until when; without a date, when it is null or absent.
    due_at: Option<Timestamp>,
    /// `correct`: the content, as it is to be sent.
    payload: Option<Box<RawValue>>,
    /// `correct`: the content of a message that is not JSON.
    payload_base64: Option<String>,
}

/// What is done with a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Assign,
    Acknowledge,
    Note,
    Due,
    Reveal,
    Correct,
    Release,
    Discard,
    Waive,
    Purge,
}

impl Verb {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "assign" => Self::Assign,
            "acknowledge" => Self::Acknowledge,
            "note" => Self::Note,
            "due" => Self::Due,
            "reveal" => Self::Reveal,
            "correct" => Self::Correct,
            "release" => Self::Release,
            "discard" => Self::Discard,
            "waive" => Self::Waive,
            "purge" => Self::Purge,
            _ => return None,
        })
    }
}

pub(super) async fn act(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(i64, String)>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Path((case_id, name)) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let verb = Verb::named(&name).ok_or_else(|| {
        let detail = "an action is one of assign, acknowledge, note, due, reveal, correct, \
                      release, discard, waive, purge";
        Problem::new(Code::NoPath, detail)
    })?;
    let scope = match verb {
        Verb::Reveal => Scope::Read,
        _ => Scope::Operate,
    };
    guard::require(&caller, scope)?;
    let said = said(&console, &headers, body, verb).await?;
    let acting = Acting {
        console: &console,
        caller: &caller,
        case_id,
        said: &said,
    };
    match verb {
        Verb::Reveal => acting.reveal().await,
        Verb::Correct => acting.correct().await,
        Verb::Assign => {
            let owner = said.owner.as_deref();
            acting.simply(CaseAction::Assign { owner }).await
        }
        Verb::Due => {
            let due_at = said.due_at;
            acting.simply(CaseAction::SetDue { due_at }).await
        }
        Verb::Acknowledge => acting.simply(CaseAction::Acknowledge).await,
        Verb::Note => acting.simply(CaseAction::Note).await,
        Verb::Release => acting.simply(CaseAction::Release).await,
        Verb::Discard => acting.simply(CaseAction::Discard).await,
        Verb::Waive => acting.simply(CaseAction::Waive).await,
        Verb::Purge => acting.simply(CaseAction::Purge).await,
    }
}

/// The body: a JSON object, or nothing.
async fn said(
    console: &Console,
    headers: &HeaderMap,
    body: Body,
    verb: Verb,
) -> Result<Said, Problem> {
    let body = read(console, headers, body).await?;
    if body.is_empty() {
        return Ok(Said::default());
    }
    // A form of another site's page could say anything else without asking first.
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next());
    if essence.map(str::trim) != Some("application/json") {
        let detail = "say what is to be done as application/json";
        return Err(Problem::new(Code::ContentType, detail));
    }
    let unreadable = |detail: String| Problem::new(Code::ActionUnreadable, detail);
    let said: Said = serde_json::from_slice(&body).map_err(|error| unreadable(words_of(&error)))?;
    let extra = [
        ("owner", said.owner.is_some() && verb != Verb::Assign),
        ("due_at", said.due_at.is_some() && verb != Verb::Due),
        ("payload", said.payload.is_some() && verb != Verb::Correct),
        (
            "payload_base64",
            said.payload_base64.is_some() && verb != Verb::Correct,
        ),
    ];
    match extra.iter().find(|(_, is_extra)| *is_extra) {
        Some((name, _)) => Err(unreadable(format!("this action takes no {name}"))),
        None => Ok(said),
    }
}

/// Where it cannot be read and of what kind that is: the words themselves may quote a value.
fn words_of(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Data => "a member that is unknown or of the wrong kind",
        _ => "no JSON",
    };
    format!("{kind} at line {}, column {}", error.line(), error.column())
}

struct Acting<'a> {
    console: &'a Console,
    caller: &'a Caller,
    case_id: i64,
    said: &'a Said,
}

impl Acting<'_> {
    fn request<'r>(&'r self, action: CaseAction<'r>) -> ActOnCase<'r> {
        ActOnCase {
            case_id: self.case_id,
            action,
            expected: self.said.expected,
            by: Actor {
                who: &self.caller.name,
                why: self.said.why.as_deref(),
            },
        }
    }

    async fn simply(&self, action: CaseAction<'_>) -> Result<Response, Problem> {
        let acted = desk(self.console)?.act(self.request(action)).await;
        match acted {
            Ok(standing) => {
                let mut answer = json!(standing);
                answer["case_id"] = json!(self.case_id);
                Ok(Json(answer).into_response())
            }
            Err(error) if error.kind() == StoreErrorKind::Refused => {
                one_case(self.console, self.case_id).await?;
                Err(store_failed(error))
            }
            Err(error) => Err(store_failed(error)),
        }
    }

    async fn correct(&self) -> Result<Response, Problem> {
        let case = one_case(self.console, self.case_id).await?;
        let payload = self.payload(&case.row.envelope.payload)?;
        let checked = self
            .console
            .payloads
            .check(&case.row.envelope.message_type, &payload);
        checked.map_err(|faults| {
            let detail = "the payload is not what its type's schema describes";
            Problem::new(Code::PayloadRefused, detail).with("faults", faults)
        })?;
        let id = Uuid::now_v7().to_string();
        let action = CaseAction::Correct {
            id: &id,
            payload: &payload,
        };
        self.simply(action).await
    }

    /// The content, of the kind that the original has.
    fn payload(&self, original: &Payload) -> Result<Payload, Problem> {
        let refused = |detail: &str| Problem::new(Code::PayloadRefused, detail);
        let said = (&self.said.payload, &self.said.payload_base64);
        match (original, said) {
            (Payload::Json(_), (Some(raw), None)) => Ok(Payload::Json(raw.get().into())),
            (Payload::Binary(_), (None, Some(text))) => {
                let bytes = STANDARD.decode(text);
                let bytes = bytes.map_err(|_| refused("payload_base64 is not Base64"))?;
                Ok(Payload::Binary(bytes.into()))
            }
            (Payload::Json(_), _) => Err(refused("the message is JSON: give payload")),
            (Payload::Binary(_), _) => Err(refused("the message is not JSON: give payload_base64")),
        }
    }

    /// On record before it is shown, and also when it may not be.
    async fn reveal(&self) -> Result<Response, Problem> {
        let is_permitted = self.caller.may(Scope::Reveal);
        let request = self.request(CaseAction::Reveal { is_permitted });
        let acted = desk(self.console)?.act(request).await;
        guard::require(self.caller, Scope::Reveal)?;
        if let Err(error) = acted {
            one_case(self.console, self.case_id).await?;
            return Err(store_failed(error));
        }
        let case = one_case(self.console, self.case_id).await?;
        let message_type = &case.row.envelope.message_type;
        let sensitivity = self.console.payloads.sensitivity(message_type);
        let view = CaseView {
            case: &case,
            sensitivity: &sensitivity,
            now: now(),
        };
        let shown = serde_json::to_string(&Revealed::of(&view)).map_err(|_| no_case())?;
        Ok(([(header::CONTENT_TYPE, "application/json")], shown).into_response())
    }
}
