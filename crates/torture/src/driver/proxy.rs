//! A TCP proxy in front of the database that can cut, delay and choose.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::trouble::{Trouble, while_doing};

/// A simple query that commits, as PostgreSQL's protocol has it.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// What the proxy does to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    /// Nothing.
    None,
    /// Keeps what comes from the client and hands it on later.
    DelayToServer,
    /// Keeps what comes from the server and hands it on later.
    DelayToClient,
    /// What comes from the client is gone.
    DropToServer,
    /// What comes from the server is gone.
    DropToClient,
    /// The next commit reaches the server, its answer is gone and the connection with it.
    LoseCommitAnswer,
    /// The next commit does not reach the server, and the connection is gone.
    LoseCommit,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    cut: Cut,
    upstream: SocketAddr,
    /// Connections of an earlier generation are reset.
    generation: u64,
}

/// One listener.
pub(super) struct Proxy {
    port: u16,
    rule: watch::Sender<Rule>,
    lost: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn start(upstream: SocketAddr) -> Result<Self, Trouble> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.map_err(while_doing("listen"))?;
        let port = listener.local_addr().map_err(while_doing("listen"))?.port();
        let (rule, rules) = watch::channel(Rule {
            cut: Cut::None,
            upstream,
            generation: 0,
        });
        let lost = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&lost);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (rules, lost) = (rules.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    let rule = *rules.borrow();
                    let Ok(server) = TcpStream::connect(rule.upstream).await else {
                        return reset(&client);
                    };
                    let link = Link {
                        client,
                        server,
                        rules,
                        lost,
                    };
                    link.run(rule.generation).await;
                });
            }
        });
        Ok(Self {
            port,
            rule,
            lost,
            task,
        })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Commits whose answer, or which themselves, were lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn cut(&self, cut: Cut) {
        self.rule.send_modify(|rule| rule.cut = cut);
    }

    /// Resets all connections; new ones go through.
    pub(super) fn reset(&self) {
        self.rule.send_modify(|rule| {
            rule.cut = Cut::None;
            rule.generation += 1;
        });
    }

    /// Resets all connections; new ones lead elsewhere.
    pub(super) fn lead_to(&self, upstream: SocketAddr) {
        self.rule.send_modify(|rule| {
            rule.cut = Cut::None;
            rule.upstream = upstream;
            rule.generation += 1;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An end that the other side sees as a reset.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

struct Link {
    client: TcpStream,
    server: TcpStream,
    rules: watch::Receiver<Rule>,
    lost: Arc<AtomicU64>,
}

/// What one step came to.
enum Step {
    Goes,
    Over,
}

impl Link {
    async fn run(mut self, generation: u64) {
        let _ = self.client.set_nodelay(true);
        let _ = self.server.set_nodelay(true);
        let (mut up, mut down) = (vec![0; 16_384], vec![0; 65_536]);
        let (mut kept_up, mut kept_down) = (Vec::new(), Vec::new());
        loop {
            let step = tokio::select! {
                changed = self.rules.changed() => match changed {
                    Ok(()) => self.rule_changed(generation, &mut kept_up, &mut kept_down).await,
                    Err(_) => Step::Over,
                },
                read = self.client.read(&mut up) => match read {
                    Ok(n) if n > 0 => self.client_wrote(&up[..n], &mut kept_up).await,
                    _ => Step::Over,
                },
                read = self.server.read(&mut down) => match read {
                    Ok(n) if n > 0 => self.server_wrote(&down[..n], &mut kept_down).await,
                    _ => Step::Over,
                },
            };
            if matches!(step, Step::Over) {
                reset(&self.client);
                reset(&self.server);
                return;
            }
        }
    }

    async fn rule_changed(
        &mut self,
        generation: u64,
        kept_up: &mut Vec<u8>,
        kept_down: &mut Vec<u8>,
    ) -> Step {
        let rule = *self.rules.borrow_and_update();
        if rule.generation != generation {
            return Step::Over;
        }
        let mut written = Ok(());
        if rule.cut != Cut::DelayToServer {
            written = self.server.write_all(kept_up).await;
            kept_up.clear();
        }
        if rule.cut != Cut::DelayToClient && written.is_ok() {
            written = self.client.write_all(kept_down).await;
            kept_down.clear();
        }
        done(&written)
    }

    async fn client_wrote(&mut self, bytes: &[u8], kept: &mut Vec<u8>) -> Step {
        let cut = self.rules.borrow().cut;
        let commits = bytes.windows(COMMIT.len()).any(|part| part == COMMIT);
        match cut {
            Cut::DelayToServer => kept.extend_from_slice(bytes),
            Cut::DropToServer => {}
            Cut::LoseCommit if commits => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return Step::Over;
            }
            Cut::LoseCommitAnswer if commits => {
                let written = self.server.write_all(bytes).await;
                // The answer says that it happened; nobody else hears it.
                let mut answer = [0; 1_024];
                if written.is_ok() && self.server.read(&mut answer).await.is_ok_and(|n| n > 0) {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                return Step::Over;
            }
            _ => return done(&self.server.write_all(bytes).await),
        }
        Step::Goes
    }

    async fn server_wrote(&mut self, bytes: &[u8], kept: &mut Vec<u8>) -> Step {
        let cut = self.rules.borrow().cut;
        match cut {
            Cut::DelayToClient => kept.extend_from_slice(bytes),
            Cut::DropToClient => {}
            _ => return done(&self.client.write_all(bytes).await),
        }
        Step::Goes
    }
}

const fn done(written: &std::io::Result<()>) -> Step {
    match written {
        Ok(()) => Step::Goes,
        Err(_) => Step::Over,
    }
}
