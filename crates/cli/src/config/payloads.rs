//! What is configured of a type's payloads: their schemas, and what of them may be shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jsonschema::Validator;
use onceward_core::Payload;
use onceward_core::sensitivity::{Pointer, Sensitivity};
use serde_json::Value;

use super::fault::FaultCode;
use super::reader::{Placed, Section};

/// Most faults of one payload that are told.
const FAULTS_MAX: usize = 20;

/// What is configured of a type's payloads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PayloadRules {
    /// What of them may be shown.
    pub sensitivity: Sensitivity,
    /// Their JSON Schemas, all versions, each with its file.
    pub schemas: Vec<(PathBuf, Arc<Value>)>,
}

impl PayloadRules {
    /// Whether a payload is what some version of the type's schema describes; without a schema
    /// any is.
    ///
    /// # Errors
    /// Where it is not, and which rule it breaks, for each version; no word of the payload itself.
    pub fn check(&self, payload: &Payload) -> Result<(), Vec<String>> {
        if self.schemas.is_empty() {
            return Ok(());
        }
        let Payload::Json(text) = payload else {
            return Err(vec!["it is not JSON, and its type has a schema".to_owned()]);
        };
        let value: Value = serde_json::from_str(text).map_err(|error| vec![error.to_string()])?;
        let mut faults = Vec::new();
        for (path, schema) in &self.schemas {
            // They were compiled when the configuration was read.
            let Ok(validator) = validator(schema) else {
                faults.push(format!("{}: not a schema", path.display()));
                continue;
            };
            let found = faults_of(&validator, &value);
            if found.is_empty() {
                return Ok(());
            }
            let shown = path.file_name().unwrap_or(path.as_os_str());
            let shown = shown.to_string_lossy();
            faults.extend(found.iter().map(|fault| format!("{shown}: {fault}")));
        }
        faults.truncate(FAULTS_MAX);
        Err(faults)
    }
}

/// Each fault: where, and what the schema says there.
fn faults_of(validator: &Validator, value: &Value) -> Vec<String> {
    let faults = validator.iter_errors(value).map(|error| {
        let at = error.instance_path().to_string();
        let at = if at.is_empty() { "the whole" } else { &at };
        format!("{at}: {}", error.masked_with("the value"))
    });
    faults.take(FAULTS_MAX).collect()
}

fn validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::validator_for(schema).map_err(|error| error.to_string())
}

/// The keys `schemas` and `sensitive` of a type.
pub(super) fn read(section: &Section<'_>, folder: &Path) -> PayloadRules {
    let mut schemas = Vec::new();
    for file in section
        .texts("schemas")
        .map_or_else(Vec::new, |texts| texts.value)
    {
        let path = folder.join(&file.value);
        match schema_in(&path) {
            Ok(schema) => schemas.push((path, Arc::new(schema))),
            Err(problem) => {
                let message = format!("the schema {} is not usable: {problem}", path.display());
                section.fault(FaultCode::BadValue, &file.place, message);
            }
        }
    }
    let pointers = section.texts("sensitive").map(|texts| {
        let pointers = texts.value.iter().map(|text| pointer(section, text));
        pointers.flatten().collect()
    });
    let documents = schemas.iter().map(|(_, schema)| Arc::clone(schema));
    PayloadRules {
        sensitivity: Sensitivity::of(documents.collect(), pointers),
        schemas,
    }
}

fn pointer(section: &Section<'_>, text: &Placed<String>) -> Option<Pointer> {
    match text.value.parse() {
        Ok(pointer) => Some(pointer),
        Err(bad) => {
            let bad: onceward_core::sensitivity::BadPointer = bad;
            section.fault(FaultCode::BadValue, &text.place, bad.to_string());
            None
        }
    }
}

/// A schema must be there, be JSON, and be a schema; what it refers to is in it.
fn schema_in(path: &Path) -> Result<Value, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let schema: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    validator(&schema).map(|_| schema)
}
