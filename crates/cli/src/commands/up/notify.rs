//! Tells systemd how it stands, where systemd asked to be told.
//!
//! Protocol: <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>

/// Sends a state such as `READY=1` to the socket that `NOTIFY_SOCKET` names, if any.
#[cfg(unix)]
pub(super) fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&name, state) {
        tracing::warn!(%error, "could not notify the service manager");
    }
}

#[cfg(unix)]
fn send(name: &std::ffi::OsStr, state: &str) -> std::io::Result<()> {
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let socket = UnixDatagram::unbound()?;
    let address = match name.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => abstract_address(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// An address that is no file.
#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> std::io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    std::os::unix::net::SocketAddr::from_abstract_name(name)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn abstract_address(_name: &[u8]) -> std::io::Result<std::os::unix::net::SocketAddr> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(super) fn notify(_state: &str) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn states_arrive_at_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        let mut buffer = [0; 32];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }
}
