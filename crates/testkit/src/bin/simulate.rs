//! Runs the engine under simulation: many seeds, or one with its trace. See `scripts/simulate`.

use std::env;
use std::io::Write as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use onceward_testkit::simulation::{Defect, Fault, Role, Setup, Variant, run, shrink};

const HELP: &str = "\
Usage: scripts/simulate [--seeds N | --minutes N] [--from SEED] [--workers N]
       scripts/simulate --seed SEED [--trace] [--shrink] [changes]

Runs the engine over a store in memory, in simulated processes with simulated faults. Every seed
is a run of its own and gives the same steps each time. A seed that fails is shrunk, and the
command that repeats it is printed. Exit status 1 when a seed failed.

  --seeds N            run N seeds, one after the other (2000)
  --minutes N          run seeds for N minutes
  --from SEED          begin with this seed (0)
  --workers N          processes at work (one for each core)
  --seed SEED          run this one
  --trace              print its steps
  --shrink             look for a smaller run that fails in the same way

Changes to what a seed stands for:
  --single             every message in a transaction of its own
  --messages N         so many messages
  --processes N        so many processes
  --subscriptions A,B  only these: ship, stats, carrier, mail, notice, pay, track
  --faults A,B         only these, or none: crash, linger, pause, lost, refuse, hang, clock, churn,
                       handler, kill, retention, producer, absence, age, operate, replay, outage
  --without A,B        without tenants, classes, small windows, messages that are appended by
                       handlers before they fail: tenants, classes, tight, early
  --defect NAME        with something wrong on purpose

What it is for, beside nothing in particular (plain):
  --variant NAME       versions-pass, versions-wait, versions-end: messages carry versions, and gaps
                         pass, wait, or are given up in the end
                       drops: messages are merged, or shed when their turn comes late
                       rush: more to do than can be done, of several classes and tenants
                       lost-commits: commits that nobody hears of, of which a part has failed
                       each: the seeds take turns in all of them
";

#[derive(Default)]
struct Options {
    seed: Option<u64>,
    seeds: Option<u64>,
    minutes: Option<u64>,
    from: u64,
    step: u64,
    workers: Option<u64>,
    is_worker: bool,
    has_trace: bool,
    has_shrink: bool,
    variant: Of,
    changes: Vec<(String, String)>,
}

/// Which variant seeds are run as.
#[derive(Clone, Copy)]
enum Of {
    One(Variant),
    /// In turn.
    Each,
}

impl Default for Of {
    fn default() -> Self {
        Self::One(Variant::Plain)
    }
}

impl Of {
    fn variant(self, seed: u64) -> Variant {
        let all = Variant::ALL;
        match self {
            Self::One(variant) => variant,
            // Not in step with what every other seed is.
            Self::Each => all[(seed / 2 % all.len() as u64) as usize],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::One(variant) => variant.name(),
            Self::Each => "each",
        }
    }
}

impl FromStr for Of {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "each" => Ok(Self::Each),
            name => name.parse().map(Self::One),
        }
    }
}

fn number<T: FromStr>(name: &str, text: Option<String>) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("{name} needs a number"))?;
    text.parse()
        .map_err(|_| format!("{name} needs a number, not {text:?}"))
}

fn value(name: &str, text: Option<String>) -> Result<String, String> {
    text.ok_or_else(|| format!("{name} needs a value"))
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options {
        step: 1,
        ..Options::default()
    };
    let mut arguments = env::args().skip(1);
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seed" => options.seed = Some(number(&name, arguments.next())?),
            "--seeds" => options.seeds = Some(number(&name, arguments.next())?),
            "--minutes" => options.minutes = Some(number(&name, arguments.next())?),
            "--from" => options.from = number(&name, arguments.next())?,
            "--step" => options.step = number(&name, arguments.next())?,
            "--workers" => options.workers = Some(number(&name, arguments.next())?),
            "--worker" => options.is_worker = true,
            "--trace" => options.has_trace = true,
            "--shrink" => options.has_shrink = true,
            "--single" => options.changes.push((name, String::new())),
            "--variant" => options.variant = value(&name, arguments.next())?.parse()?,
            "--messages" | "--processes" | "--subscriptions" | "--faults" | "--without"
            | "--defect" => {
                let value = value(&name, arguments.next())?;
                options.changes.push((name, value));
            }
            other => return Err(format!("{other:?} is not an option; see --help")),
        }
    }
    Ok(Some(options))
}

fn list<T: FromStr<Err = String>>(names: &str) -> Result<Vec<T>, String> {
    if names == "none" {
        return Ok(Vec::new());
    }
    names.split(',').map(str::parse).collect()
}

fn setup(seed: u64, options: &Options) -> Result<Setup, String> {
    let mut setup = Setup::of(seed).varied(options.variant.variant(seed));
    for (name, value) in &options.changes {
        match name.as_str() {
            "--single" => setup.coalesce = false,
            "--without" => {
                for word in value.split(',') {
                    setup = setup.without(word)?;
                }
            }
            "--messages" => setup.messages = number(name, Some(value.clone()))?,
            "--processes" => setup.processes = number(name, Some(value.clone()))?,
            "--subscriptions" => setup.roles = list::<Role>(value)?,
            "--faults" => setup.faults = list::<Fault>(value)?,
            _ => setup.defect = Some(Defect::from_str(value)?),
        }
    }
    Ok(setup)
}

/// Runs one setup; returns whether all is well.
fn one(setup: &Setup, options: &Options, out: &mut impl std::io::Write) -> std::io::Result<bool> {
    let mut setup = setup.clone();
    let mut report = run(&setup);
    if let Some(violation) = report.violation.clone()
        && options.has_shrink
    {
        setup = shrink(&setup, violation.checker);
        report = run(&setup);
    }
    if options.has_trace {
        for (number, step) in report.steps.iter().enumerate() {
            writeln!(out, "{number:>5} {step}")?;
        }
    }
    let Some(violation) = report.violation else {
        return Ok(true);
    };
    writeln!(out, "seed {}: {violation}", setup.seed)?;
    writeln!(out, "    scripts/simulate {setup} --trace")?;
    Ok(false)
}

/// Runs seed after seed in this process; the last line says how many, and how many failed.
fn work(options: &Options) -> Result<ExitCode, String> {
    let started = Instant::now();
    let mut out = std::io::stdout();
    let shrinking = Options {
        has_shrink: true,
        ..Options::default()
    };
    let (mut seed, mut count, mut failed, mut simulated_ms) = (options.from, 0_u64, 0_u64, 0_u64);
    loop {
        let is_over = match options.minutes {
            Some(minutes) => started.elapsed() >= Duration::from_secs(60 * minutes),
            None => count >= options.seeds.unwrap_or(2_000),
        };
        if is_over {
            break;
        }
        let mut setup = setup(seed, options)?;
        // Every other seed gives each message a transaction of its own.
        setup.coalesce &= seed % 2 == 0;
        let report = run(&setup);
        simulated_ms += report.took_ms;
        if report.violation.is_some() {
            failed += 1;
            one(&setup, &shrinking, &mut out).map_err(|error| error.to_string())?;
        }
        count += 1;
        seed += options.step;
    }
    writeln!(out, "= {count} {failed} {simulated_ms}").map_err(|error| error.to_string())?;
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Starts a process for each core, since a simulation is one thread's work.
fn lead(options: &Options) -> Result<ExitCode, String> {
    let started = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let workers = options.workers.unwrap_or(cores).max(1);
    let seeds = options.seeds.unwrap_or(2_000);
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let worker = |index: u64| -> Result<Child, String> {
        let mut command = Command::new(&program);
        command.arg("--worker");
        command.args(["--from", &(options.from + index).to_string()]);
        command.args(["--step", &workers.to_string()]);
        match options.minutes {
            Some(minutes) => command.args(["--minutes", &minutes.to_string()]),
            None => {
                let share = seeds / workers + u64::from(index < seeds % workers);
                command.args(["--seeds", &share.to_string()])
            }
        };
        command.args(["--variant", options.variant.name()]);
        for (name, value) in &options.changes {
            command.arg(name);
            if !value.is_empty() {
                command.arg(value);
            }
        }
        let command = command.stdout(Stdio::piped());
        command.spawn().map_err(|error| error.to_string())
    };
    let children: Vec<Child> = (0..workers).map(worker).collect::<Result<_, _>>()?;
    let mut out = std::io::stdout();
    let (mut totals, mut is_well) = ([0_u64; 3], true);
    for child in children {
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        is_well &= output.status.success();
        let text = String::from_utf8_lossy(&output.stdout);
        for line in text.lines() {
            match line.strip_prefix("= ") {
                Some(counts) => {
                    let counts = counts.split(' ').map(|n| n.parse().unwrap_or(0));
                    totals
                        .iter_mut()
                        .zip(counts)
                        .for_each(|(total, n)| *total += n);
                }
                None => writeln!(out, "{line}").map_err(|error| error.to_string())?,
            }
        }
    }
    let [count, failed, simulated_ms] = totals;
    let took = started.elapsed();
    let faster = simulated_ms as f64 / took.as_millis().max(1) as f64;
    writeln!(
        out,
        "{count} seeds, {failed} failed, in {:.1} s: {:.1} simulated hours, {faster:.0} times \
         faster than real time",
        took.as_secs_f64(),
        simulated_ms as f64 / 3_600_000.0
    )
    .map_err(|error| error.to_string())?;
    Ok(ExitCode::from(u8::from(!is_well || failed > 0)))
}

fn go() -> Result<ExitCode, String> {
    let Some(options) = options()? else {
        return write!(std::io::stdout(), "{HELP}")
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string());
    };
    if let Some(seed) = options.seed {
        let setup = setup(seed, &options)?;
        let is_well = one(&setup, &options, &mut std::io::stdout());
        let is_well = is_well.map_err(|error| error.to_string())?;
        return Ok(ExitCode::from(u8::from(!is_well)));
    }
    match options.is_worker {
        true => work(&options),
        false => lead(&options),
    }
}

fn main() -> ExitCode {
    match go() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "simulate: {error}");
            ExitCode::from(2)
        }
    }
}
