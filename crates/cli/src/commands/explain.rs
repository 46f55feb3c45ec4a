//! `onceward explain CODE`.

use clap::Args;

use crate::error::{Code, EXIT_USAGE, Error};
use crate::output::Output;

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The code, such as OW1005
    code: String,
}

/// Prints the page of a code.
///
/// # Errors
/// When there is no such code.
pub fn run(output: Output, args: &ExplainArgs) -> Result<(), Error> {
    let wanted = args.code.to_uppercase();
    let Some(page) = page_of(&wanted) else {
        let message = format!("no error has the code {wanted}");
        return Err(Error::new(Code::NotFound, message).with_exit(EXIT_USAGE));
    };
    if output.is_json() {
        return output.json(&serde_json::json!({ "code": wanted, "page": page }));
    }
    output.line(page.trim_end())
}

/// The page of a code of the commands or of the HTTP API.
fn page_of(code: &str) -> Option<&'static str> {
    let ours = Code::ALL.iter().map(|c| (c.as_str(), c.page()));
    let api = onceward_console::Code::ALL
        .iter()
        .map(|c| (c.as_str(), c.page()));
    ours.chain(api)
        .find(|(known, _)| *known == code)
        .map(|(_, page)| page)
}
