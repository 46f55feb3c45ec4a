//! The other side of a call: a small server in the test's process that keeps its own record.

use std::sync::{Arc, Mutex};

use onceward::Failure;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// When a call has its effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Happens {
    /// At once; only the answer waits.
    OnArrival,
    /// When the answer is let go, if the caller is still there.
    WithTheAnswer,
}

/// What was asked, in order: verb and operation.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

pub struct Stub {
    pub address: String,
    asked: Asked,
    is_held: watch::Sender<bool>,
}

impl Stub {
    /// Answers at once.
    pub async fn start(happens: Happens) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Asked::default();
        let done = Arc::default();
        let (is_held, held) = watch::channel(false);
        let answers = (Arc::clone(&asked), done, held, happens);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, done, held, happens) = answers.clone();
                tokio::spawn(answer(stream, asked, done, held, happens));
            }
        });
        Self {
            address,
            asked,
            is_held,
        }
    }

    /// From now on calls get no answer until [`let_go`](Self::let_go).
    pub fn hold(&self) {
        self.is_held.send_replace(true);
    }

    pub fn let_go(&self) {
        self.is_held.send_replace(false);
    }

    /// Operations asked with a verb, in order.
    pub fn asked(&self, verb: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let asked = asked.iter().filter(|(with, _)| with == verb);
        asked.map(|(_, operation)| operation.clone()).collect()
    }

    /// Verbs with which an operation was asked, in order.
    pub fn verbs(&self, operation: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let asked = asked.iter().filter(|(_, of)| of == operation);
        asked.map(|(verb, _)| verb.clone()).collect()
    }
}

async fn answer(
    stream: TcpStream,
    asked: Asked,
    done: Arc<Mutex<Vec<String>>>,
    mut held: watch::Receiver<bool>,
    happens: Happens,
) -> Option<()> {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input.read_line(&mut line).await.ok()?;
    let (verb, operation) = line.trim().split_once(' ')?;
    let entry = (verb.to_owned(), operation.to_owned());
    asked.lock().unwrap().push(entry);
    let reply = if verb == "probe" {
        let is_done = done.lock().unwrap().iter().any(|done| done == operation);
        if is_done { "yes\n" } else { "no\n" }
    } else {
        if happens == Happens::OnArrival {
            done.lock().unwrap().push(operation.to_owned());
        }
        let mut more = String::new();
        tokio::select! {
            free = held.wait_for(|is_held| !is_held) => { free.ok()?; }
            // The caller is gone.
            _ = input.read_line(&mut more) => return None,
        }
        if happens == Happens::WithTheAnswer {
            done.lock().unwrap().push(operation.to_owned());
        }
        "ok\n"
    };
    output.write_all(reply.as_bytes()).await.ok()
}

/// Asks the stub, from whatever process.
pub async fn ask(address: &str, verb: &str, operation: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("{verb} {operation}\n").as_bytes())
        .await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    match line.trim() {
        "" => Err(Failure::ambiguous("no_answer", "the other side is gone")),
        reply => Ok(reply.to_owned()),
    }
}
