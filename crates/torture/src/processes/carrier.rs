//! The carrier: an outside party with its own durable record. It sometimes does the work and never
//! answers, sometimes does nothing and never answers, sometimes is busy.
//!
//! One line of JSON asks, one line answers. It books an operation once, however often it is asked;
//! its record tells what it was asked, by which process, in order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward::{Failure, Probe};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{CarrierArgs, files};
use crate::record::{self, Lines};
use crate::trouble::{Trouble, while_doing};

/// How long a worker waits for the carrier.
const PATIENCE: Duration = Duration::from_millis(300);

/// What the carrier is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// Do it.
    Book,
    /// Was it done?
    Find,
}

/// A line of the carrier's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it was asked.
    pub asked: Asked,
    /// For which operation.
    pub operation: String,
    /// By which process.
    pub worker: u32,
    /// The booking made now, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booked: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Request {
    asked: Asked,
    operation: String,
    worker: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Booked(String),
    Unknown,
    Busy,
}

struct Desk {
    record: Lines,
    bookings: BTreeMap<String, String>,
    random: fastrand::Rng,
}

/// What becomes of a request.
enum Mood {
    Answers,
    /// Does what it is asked and never says so.
    Silent,
    /// Does nothing and never says so.
    Deaf,
    Busy,
}

pub(super) async fn run(args: &CarrierArgs) -> Result<(), Trouble> {
    let path = args.folder.join(files::BOOKINGS);
    let known = record::read(&path).map_err(while_doing("read the record"))?;
    let known = known
        .iter()
        .filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    let bookings = known.filter_map(|entry| Some((entry.operation, entry.booked?)));
    let desk = Desk {
        bookings: bookings.collect(),
        record: Lines::open(&path).map_err(while_doing("open the record"))?,
        random: fastrand::Rng::with_seed(args.seed),
    };
    let desk = Arc::new(Mutex::new(desk));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.map_err(while_doing("listen"))?;
    let address = listener.local_addr().map_err(while_doing("listen"))?;
    let (new, port) = (
        args.folder.join("carrier.new"),
        args.folder.join(files::CARRIER_PORT),
    );
    std::fs::write(&new, address.port().to_string())
        .and_then(|()| std::fs::rename(&new, &port))
        .map_err(while_doing("say where it listens"))?;
    loop {
        let (stream, _) = listener.accept().await.map_err(while_doing("listen"))?;
        let desk = Arc::clone(&desk);
        // A client that goes away is its own trouble.
        tokio::spawn(async move { serve(stream, &desk).await });
    }
}

async fn serve(mut stream: TcpStream, desk: &Mutex<Desk>) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(&mut stream).read_line(&mut line).await?;
    let request: Request = serde_json::from_str(&line)?;
    let answered = {
        let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.answer(request)?
    };
    match answered {
        Some(answer) => {
            let text = serde_json::to_string(&answer)? + "\n";
            stream.write_all(text.as_bytes()).await
        }
        // Until the client gives up.
        None => BufReader::new(&mut stream)
            .read_line(&mut line)
            .await
            .map(|_| ()),
    }
}

impl Desk {
    fn mood(&mut self) -> Mood {
        match self.random.u8(..40) {
            0 => Mood::Silent,
            1 => Mood::Deaf,
            2 => Mood::Busy,
            _ => Mood::Answers,
        }
    }

    fn answer(&mut self, request: Request) -> std::io::Result<Option<Answer>> {
        let mood = self.mood();
        if matches!(mood, Mood::Deaf) {
            return Ok(None);
        }
        if matches!(mood, Mood::Busy) && request.asked == Asked::Book {
            return Ok(Some(Answer::Busy));
        }
        let known = self.bookings.get(&request.operation).cloned();
        let booked = match (&known, request.asked) {
            (None, Asked::Book) => Some(format!("booking-{:08}", self.bookings.len() + 1)),
            _ => None,
        };
        let entry = Entry {
            asked: request.asked,
            operation: request.operation,
            worker: request.worker,
            booked: booked.clone(),
        };
        self.record.add_durably(&serde_json::to_string(&entry)?)?;
        if let Some(booking) = &booked {
            self.bookings.insert(entry.operation, booking.clone());
        }
        if matches!(mood, Mood::Silent) {
            return Ok(None);
        }
        Ok(Some(match known.or(booked) {
            Some(booking) => Answer::Booked(booking),
            None => Answer::Unknown,
        }))
    }
}

/// The carrier as workers see it.
pub(super) struct CarrierClient {
    port: PathBuf,
}

/// Why there is no answer.
enum Silence {
    /// Nothing was sent.
    NotAsked,
    /// It may have been done.
    Unclear,
}

impl CarrierClient {
    pub(super) const fn new(port: PathBuf) -> Self {
        Self { port }
    }

    async fn ask(&self, asked: Asked, operation: &str) -> Result<Answer, Silence> {
        let port = std::fs::read_to_string(&self.port).map_err(|_| Silence::NotAsked)?;
        let port: u16 = port.parse().map_err(|_| Silence::NotAsked)?;
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let mut stream = stream.map_err(|_| Silence::NotAsked)?;
        let request = Request {
            asked,
            operation: operation.to_owned(),
            worker: std::process::id(),
        };
        let text = serde_json::to_string(&request).map_err(|_| Silence::NotAsked)? + "\n";
        let answer = async {
            stream.write_all(text.as_bytes()).await?;
            let mut line = String::new();
            BufReader::new(&mut stream).read_line(&mut line).await?;
            Ok::<Answer, std::io::Error>(serde_json::from_str(&line)?)
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(Silence::Unclear),
        }
    }

    pub(super) async fn book(&self, operation: &str) -> Result<String, Failure> {
        match self.ask(Asked::Book, operation).await {
            Ok(Answer::Booked(booking)) => Ok(booking),
            Ok(Answer::Unknown | Answer::Busy) => Err(Failure::transient("busy", "not now")),
            Err(Silence::NotAsked) => Err(Failure::transient("away", "nobody is there")),
            Err(Silence::Unclear) => Err(Failure::ambiguous("silence", "no answer")),
        }
    }

    pub(super) async fn find(&self, operation: &str) -> Result<Probe<String>, Failure> {
        match self.ask(Asked::Find, operation).await {
            Ok(Answer::Booked(booking)) => Ok(Probe::Happened(booking)),
            Ok(Answer::Unknown) => Ok(Probe::DidNotHappen),
            Ok(Answer::Busy) => Err(Failure::transient("busy", "not now")),
            Err(_) => Err(Failure::transient("silence", "no answer")),
        }
    }
}
