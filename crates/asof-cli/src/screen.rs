//! Output: results go to standard output, everything else to standard error.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anstyle::{AnsiColor, Style};
use asof::{Event, Progress};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use asof::rows::{EscapeWriter, Escapes};
use asof::text::shown;

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Also in a pipe
    Always,
    /// Nowhere
    Never,
}

/// What the user wants to see.
#[derive(Clone)]
pub struct Screen {
    color: ColorChoice,
    verbose: u8,
    quiet: bool,
    verdict: Arc<Mutex<Option<anyhow::Error>>>,
}

/// The styles of highlighted parts of the output.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    pub title: Style,
    pub label: Style,
    pub good: Style,
    pub bad: Style,
}

impl Palette {
    /// No highlighting.
    #[cfg(all(test, feature = "live"))]
    pub fn plain() -> Self {
        Palette {
            title: Style::new(),
            label: Style::new(),
            good: Style::new(),
            bad: Style::new(),
        }
    }
}

impl Screen {
    pub fn new(color: ColorChoice, verbose: u8, quiet: bool) -> Self {
        Screen {
            color,
            verbose,
            quiet,
            verdict: Arc::default(),
        }
    }

    /// Sets what is wrong with the command line although the verb could begin; the verb ends with this error, whatever else
    /// it says.
    #[cfg(feature = "live")]
    pub fn set_verdict(&self, error: anyhow::Error) {
        *self.verdict() = Some(error);
    }

    /// What was set.
    pub fn take_verdict(&self) -> Option<anyhow::Error> {
        self.verdict().take()
    }

    fn verdict(&self) -> MutexGuard<'_, Option<anyhow::Error>> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Colours for the output.
    pub fn palette(&self) -> Palette {
        self.palette_for(&io::stdout())
    }

    /// Prints information that is not a result.
    pub fn note(&self, text: impl fmt::Display) {
        if !self.quiet {
            let style = self.palette_for(&io::stderr()).label;
            say(format_args!(
                "{style}note:{style:#} {}",
                shown(&text.to_string())
            ));
        }
    }

    /// Prints a warning about the input.
    pub fn warning(&self, text: impl fmt::Display) {
        if !self.quiet {
            let style = AnsiColor::Yellow.on_default().bold();
            let style = self.plain_unless_colored(style, &io::stderr());
            say(format_args!(
                "{style}warning:{style:#} {}",
                shown(&text.to_string())
            ));
        }
    }

    /// Prints an error in one line; with -v also its causes.
    pub fn error(&self, error: &anyhow::Error) {
        let style = self.palette_for(&io::stderr()).bad;
        let line = error.to_string();
        say(format_args!("{style}error:{style:#} {}", shown(&line)));
        if self.is_verbose() {
            for cause in error.chain().skip(1) {
                say(format_args!("  caused by: {}", shown(&cause.to_string())));
            }
        }
    }

    /// A progress bar on standard error, if that is a terminal.
    pub fn progress(&self, total: u64, template: &str) -> ProgressBar {
        if self.quiet || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    /// What the library reports: notes and warnings, and a progress bar of this template.
    pub fn reports(&self, template: &'static str) -> Progress {
        let (screen, bar) = (self.clone(), Mutex::new(None::<ProgressBar>));
        Progress::to(move |event| {
            let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
            let beside = |print: &dyn Fn()| match &*bar {
                Some(bar) => bar.suspend(print),
                None => print(),
            };
            match event {
                Event::Note(text) => beside(&|| screen.note(text)),
                Event::Warning(text) => beside(&|| screen.warning(text)),
                Event::Done { done, total } => {
                    let shown = bar.get_or_insert_with(|| screen.progress(total, template));
                    shown.set_position(done);
                    // The bar disappears when it is dropped.
                    if done == total {
                        *bar = None;
                    }
                }
                _ => {}
            }
        })
    }

    fn palette_for(&self, stream: &impl IsTerminal) -> Palette {
        let style = |style| self.plain_unless_colored(style, stream);
        Palette {
            title: style(Style::new().bold()),
            label: style(AnsiColor::Cyan.on_default()),
            good: style(AnsiColor::Green.on_default().bold()),
            bad: style(AnsiColor::Red.on_default().bold()),
        }
    }

    fn plain_unless_colored(&self, style: Style, stream: &impl IsTerminal) -> Style {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_colored = match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb(),
        };
        if is_colored { style } else { Style::new() }
    }
}

/// The output of a verb.
pub type Output = EscapeWriter<BufWriter<StdoutLock<'static>>>;

/// Standard output, locked once and buffered. It must be flushed, so that a failure is noticed. Invisible characters
/// that control a terminal are escaped as in JSON, wherever they come from.
pub fn output() -> Output {
    output_with(Escapes::Unseen)
}

/// Standard output for values that are not JSON, such as comma-separated ones: unchanged in a pipe, and on a terminal
/// without anything that could control it.
pub fn output_of_values() -> Output {
    output_with(if is_watched() {
        Escapes::Controls
    } else {
        Escapes::Nothing
    })
}

/// Writes a value as a line of JSON.
pub fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

/// Prints a value as a line of JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = output();
    write_json(&mut out, value)?;
    Ok(out.flush()?)
}

/// Whether the output is a terminal.
pub fn is_watched() -> bool {
    io::stdout().is_terminal()
}

/// The width of the terminal; `None` in a pipe, where nothing is cut.
pub fn room() -> Option<usize> {
    let width = || terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
    is_watched().then(width)
}

/// Characters of a decoded message that a line shows: as many as fit on a terminal; all in a pipe, where it is searched.
pub fn line_room() -> usize {
    if is_watched() { 240 } else { usize::MAX }
}

/// From here on, every line of the output is flushed as soon as it is written, for running robots.
#[cfg(feature = "live")]
pub fn show_at_once() {
    AT_ONCE.store(true, Ordering::Relaxed);
}

static AT_ONCE: AtomicBool = AtomicBool::new(false);

fn output_with(escapes: Escapes) -> Output {
    let stdout = BufWriter::with_capacity(1 << 17, io::stdout().lock());
    EscapeWriter::new(stdout, escapes).by_lines(AT_ONCE.load(Ordering::Relaxed))
}

/// Prints a line on standard error. A failure to do so cannot be reported, and is ignored.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
