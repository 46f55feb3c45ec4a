//! Real senders and receivers in Python, from a virtual environment that is made once.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::place::SOON;

/// Folder with the scripts.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python")
}

/// The interpreter of the environment, which is made where it is missing or no longer fits the
/// requirements. Tests of several processes wait for the one that makes it.
pub(crate) fn interpreter() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let requirements = scripts().join("requirements.txt");
    let wanted = fs::read_to_string(&requirements).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let (venv, done) = (folder.join("venv"), folder.join("installed"));
    let python = venv.join("bin/python");
    let is_there = fs::read_to_string(&done).is_ok_and(|installed| installed == wanted);
    if !(is_there && python.exists()) {
        // Half of one may be left of a run that was ended.
        let _ = fs::remove_dir_all(&venv);
        let venv = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&venv)
            .output();
        fine(
            &venv,
            "python3 -m venv (Debian: apt-get install python3-venv)",
        );
        let install = Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--requirement"])
            .arg(&requirements)
            .output();
        fine(&install, "pip install");
        fs::write(&done, wanted).unwrap();
    }
    python
}

#[track_caller]
fn fine(output: &std::io::Result<Output>, what: &str) {
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "{what}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Runs a script to its end, which must be a good one, and returns the lines that it printed.
#[track_caller]
pub(crate) fn run(script: &str, args: &[&str]) -> Vec<String> {
    let mut command = Command::new(interpreter());
    let output = command.arg(scripts().join(script)).args(args).output();
    fine(&output, script);
    let printed = String::from_utf8(output.unwrap().stdout).unwrap();
    printed.lines().map(str::to_owned).collect()
}

/// A receiver of pushes that checks each signature. Killed when dropped.
pub(crate) struct Checker {
    child: Child,
    port: u64,
    lines: mpsc::UnboundedReceiver<Value>,
}

impl Checker {
    pub(crate) async fn start(secret_file: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(interpreter())
            .arg(scripts().join("receive.py"))
            .arg("--secret-file")
            .arg(secret_file)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in out.lines() {
                let line = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut checker = Self {
            child,
            port: 0,
            lines,
        };
        checker.port = checker.next().await["port"].as_u64().unwrap();
        checker
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Value {
        let next = tokio::time::timeout(SOON, self.lines.recv()).await;
        next.expect("a request in time").expect("the receiver runs")
    }

    /// The next request, which must have been signed rightly and answered well.
    pub(crate) async fn next_good(&mut self) -> Value {
        let request = self.next().await;
        assert_eq!(request["verified"], true, "{request}");
        assert_eq!(request["status"], 204, "{request}");
        request
    }

    /// Whether nothing more was received so far.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.lines.try_recv().is_err()
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        // Already over at worst.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
