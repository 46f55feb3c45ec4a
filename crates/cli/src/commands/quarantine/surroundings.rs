//! What the configuration says of the payloads that cases hold.

use std::cell::OnceCell;

use onceward_console::overview::{CASES_MS_DEFAULT, OldCases};
use onceward_core::sensitivity::Sensitivity;
use onceward_core::store::Cases;

use crate::cli::Global;
use crate::config::{Config, PayloadRules};
use crate::error::{Code, Error};
use crate::output::{Output, now};
use crate::store::Opened;

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

    /// The configuration, if there is one.
    fn config(&self) -> Result<Option<&Config>, Error> {
        if let Some(config) = self.config.get() {
            return Ok(config.as_ref());
        }
        let loaded = match Config::load(&self.global.config) {
            Ok(config) => Some(config),
            Err(error) if error.code() == Code::ConfigMissing => None,
            Err(error) => return Err(error),
        };
        Ok(self.config.get_or_init(|| loaded).as_ref())
    }

    /// Cases beyond their configured retention; without a file that can be read, the default.
    pub(super) async fn old_cases<S: Cases>(
        &self,
        opened: Opened<'_, S>,
    ) -> Result<Option<OldCases>, Error> {
        let config = self.config().ok().flatten();
        let retention_ms = config.map_or(CASES_MS_DEFAULT, |config| config.cases_ms);
        opened.check(OldCases::find(opened.store, retention_ms, now()).await)
    }

    /// What is configured of a type's payloads; without a file, nothing is.
    ///
    /// # Errors
    /// When the file is there and has faults: its schemas would be missed.
    pub(super) fn rules(&self, message_type: &str) -> Result<PayloadRules, Error> {
        let config = self.config()?;
        let of_type = config.and_then(|of| of.payloads.get(message_type));
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
