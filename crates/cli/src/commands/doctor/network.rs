//! The listener and the push targets.

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{CHECK_WITHIN, Findings};
use crate::config::Config;
use crate::target;

pub(super) async fn check(config: &Config, offline: bool, findings: &mut Findings) {
    listener(config, findings).await;
    if offline {
        return;
    }
    for (name, push) in &config.pushes {
        let name = format!("target of push {name}");
        match reach(&push.url).await {
            Ok(at) => findings.ok(&name, format!("{at} accepts connections")),
            Err(found) => {
                let fix = "start the receiver or correct the address; until then messages wait";
                findings.failed(&name, found, fix);
            }
        }
    }
}

async fn listener(config: &Config, findings: &mut Findings) {
    let listen = config.http.listen;
    match TcpListener::bind(listen).await {
        Ok(_) => findings.ok("listener", format!("{listen} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            if is_onceward(&format!("http://{listen}/livez")).await {
                findings.ok("listener", format!("{listen} is served by onceward"));
            } else {
                let found = format!("{listen} is taken by another program");
                let fix = "choose another port under [http] listen; ss -ltnp shows who has it";
                findings.failed("listener", found, fix);
            }
        }
        Err(error) => {
            let found = format!("{listen}: {error}");
            let fix = "choose an address of this machine under [http] listen";
            findings.failed("listener", found, fix);
        }
    }
}

async fn is_onceward(url: &str) -> bool {
    let Ok(client) = reqwest::Client::builder().timeout(CHECK_WITHIN).build() else {
        return false;
    };
    match client.get(url).send().await {
        Ok(response) => response.status().is_success(),
        Err(_) => false,
    }
}

/// Opens a connection and sends nothing.
async fn reach(url: &str) -> Result<String, String> {
    let url = target::check(url)?;
    let host = url.host_str().ok_or("the address has no host")?;
    // An IPv6 address stands in brackets in a URL.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url
        .port_or_known_default()
        .ok_or("the address has no port")?;
    match timeout(CHECK_WITHIN, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(format!("{host}:{port}")),
        Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
        Err(_) => Err(format!(
            "{host}:{port} did not answer within {} s",
            CHECK_WITHIN.as_secs()
        )),
    }
}
