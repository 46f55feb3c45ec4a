//! What the configuration says of the payloads that cases hold.

use std::cell::OnceCell;

use onceward_core::sensitivity::Sensitivity;

use crate::cli::Global;
use crate::config::{Config, PayloadRules};
use crate::error::{Code, Error};
use crate::output::Output;

/// The configuration, read when it is first needed.
pub(super) struct Surroundings<'a> {
    global: &'a Global,
    config: OnceCell<Option<Config>>,
}

impl<'a> Surroundings<'a> {
    pub(super) const fn new(global: &'a Global) -> Self {
        Self {
            global,
            config: OnceCell::new(),
        }
    }

    /// What is configured of a type's payloads; without a file, nothing is.
    ///
    /// # Errors
    /// When the file is there and has faults: its schemas would be missed.
    pub(super) fn rules(&self, message_type: &str) -> Result<PayloadRules, Error> {
        let config = match self.config.get() {
            Some(config) => config,
            None => {
                let loaded = match Config::load(&self.global.config) {
                    Ok(config) => Some(config),
                    Err(error) if error.code() == Code::ConfigMissing => None,
                    Err(error) => return Err(error),
                };
                self.config.get_or_init(|| loaded)
            }
        };
        let of_type = config.as_ref().and_then(|of| of.payloads.get(message_type));
        Ok(of_type.cloned().unwrap_or_default())
    }

    /// What of a type's payloads may be shown: nothing, where that cannot be read.
    pub(super) fn sensitivity(&self, output: Output, message_type: &str) -> Sensitivity {
        match self.rules(message_type) {
            Ok(rules) => rules.sensitivity,
            Err(error) => {
                let message = error.full_message();
                output.say(&format!("all of the payload is hidden: {message}"));
                Sensitivity::All
            }
        }
    }
}
