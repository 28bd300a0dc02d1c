//! The table on a terminal.

use std::time::{Duration, Instant};

use anyhow::Context;
use asof::Stamp;
use asof::live::{TopicRate, Watch};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table, TableState};

use super::plain::{HEAD, MAX_COLUMN_WIDTH, cells};
use super::robot::{Session, TICK, now};

/// What is on the screen.
#[derive(Default)]
struct View {
    status: String,
    rates: Vec<TopicRate>,
    at: Stamp,
    order: Order,
    state: TableState,
}

/// The order of the topics.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Order {
    #[default]
    Name,
    Rate,
    Bandwidth,
    Age,
}

/// Shows the table until the user or the time limit ends it.
pub fn show(session: &mut Session, watch: &Watch, interval: Duration) -> anyhow::Result<()> {
    // Restores the terminal when it is dropped, and on a panic.
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal; try --plain")?;
    let result = follow(&mut terminal, session, watch, interval);
    ratatui::restore();
    result
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    session: &mut Session,
    watch: &Watch,
    interval: Duration,
) -> anyhow::Result<()> {
    let mut view = View::default();
    let mut next = Instant::now();
    while session.is_open() {
        if Instant::now() >= next {
            next = Instant::now() + interval;
            view.status = session.status();
            view.look(watch.rates(now()), now());
        }
        terminal
            .draw(|frame| view.draw(frame))
            .context("cannot draw on this terminal; try --plain")?;
        let patience = next.saturating_duration_since(Instant::now()).min(TICK);
        if event::poll(patience)?
            && let Event::Key(key) = event::read()?
            && view.press(key)
        {
            return Ok(());
        }
    }
    Ok(())
}

impl View {
    fn look(&mut self, rates: Vec<TopicRate>, at: Stamp) {
        self.rates = rates;
        self.at = at;
        self.sort();
    }

    fn sort(&mut self) {
        let at = self.at;
        let descending = |a: f64, b: f64| b.total_cmp(&a);
        match self.order {
            Order::Name => self.rates.sort_by(|a, b| a.topic.cmp(&b.topic)),
            Order::Rate => self.rates.sort_by(|a, b| descending(a.hertz, b.hertz)),
            Order::Bandwidth => self
                .rates
                .sort_by(|a, b| descending(a.bytes_per_second, b.bytes_per_second)),
            Order::Age => self
                .rates
                .sort_by(|a, b| descending(a.age(at).unwrap_or(0.0), b.age(at).unwrap_or(0.0))),
        }
    }

    /// Handles a key; returns whether it quits.
    fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let last = self.rates.len().saturating_sub(1);
        let selected = self.state.selected().unwrap_or(0);
        match key.code {
            KeyCode::Char('c') if is_control => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('s') => {
                self.order = match self.order {
                    Order::Name => Order::Rate,
                    Order::Rate => Order::Bandwidth,
                    Order::Bandwidth => Order::Age,
                    Order::Age => Order::Name,
                };
                self.sort();
            }
            KeyCode::Down | KeyCode::Char('j') => self.state.select(Some((selected + 1).min(last))),
            KeyCode::Up | KeyCode::Char('k') => self.state.select(Some(selected.saturating_sub(1))),
            KeyCode::PageDown => self.state.select(Some((selected + 10).min(last))),
            KeyCode::PageUp => self.state.select(Some(selected.saturating_sub(10))),
            KeyCode::Home => self.state.select(Some(0)),
            KeyCode::End => self.state.select(Some(last)),
            _ => {}
        }
        false
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ]);
        let [top, middle, bottom] = areas.areas(frame.area());
        let topics = self.rates.len();
        frame.render_widget(
            Line::from(format!("{topics} topics · {}", self.status)),
            top,
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let rows: Vec<_> = self
            .rates
            .iter()
            .map(|rate| (cells(rate, self.at), rate.is_silent(self.at)))
            .collect();
        let mut widths = HEAD.map(str::len);
        for (row, _) in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count().min(MAX_COLUMN_WIDTH));
            }
        }
        let shown = fit(&mut widths, usize::from(middle.width));
        let line = |cells: [String; 7]| {
            let numbered = cells.into_iter().zip(widths).enumerate();
            let numbered = numbered.filter(|(number, _)| shown[*number]);
            Row::new(numbered.map(|(number, (cell, width))| match number {
                0 | 1 => cell,
                _ => format!("{cell:>width$}"),
            }))
        };
        let head = line(HEAD.map(str::to_owned)).style(bold);
        let body = rows
            .into_iter()
            .map(|(row, is_silent)| line(row).style(if is_silent { dim } else { Style::new() }));
        let widths = widths.into_iter().zip(shown).filter(|(_, shown)| *shown);
        let widths = widths.map(|(width, _)| Constraint::Length(width as u16));
        let table = Table::new(body, widths)
            .header(head)
            .column_spacing(SPACING as u16)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, middle, &mut self.state);
        let order = match self.order {
            Order::Name => "name",
            Order::Rate => "rate",
            Order::Bandwidth => "bandwidth",
            Order::Age => "age",
        };
        let help = format!("q quits · arrows scroll · s sorts (by {order})");
        frame.render_widget(Line::from(help).style(dim), bottom);
    }
}

/// The space between two columns.
const SPACING: usize = 2;
/// Names are cut before numbers, but not below this width.
const LEAST_NAME: usize = 12;

/// Makes the columns fit; returns which are shown. Names are cut, numbers are shown whole or not at all.
fn fit(widths: &mut [usize; 7], room: usize) -> [bool; 7] {
    let mut shown = [true; 7];
    let [topic, kind] = [0, 1].map(|name| widths[name].min(LEAST_NAME));
    let numbers = |shown: &[bool; 7], widths: &[usize; 7]| -> usize {
        let numbers = (2..7).filter(|number| shown[*number]);
        numbers.map(|number| widths[number] + SPACING).sum()
    };
    // The type, jitter, drops, bandwidth and age go in this order.
    for least in [1, 4, 6, 3, 5] {
        let names = topic + if shown[1] { kind + SPACING } else { 0 };
        if names + numbers(&shown, widths) <= room {
            break;
        }
        shown[least] = false;
    }
    let names = room.saturating_sub(numbers(&shown, widths));
    let for_kind = if shown[1] { kind + SPACING } else { 0 };
    widths[0] = widths[0].min(names.saturating_sub(for_kind));
    widths[1] = widths[1].min(names.saturating_sub(widths[0] + SPACING));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;

    fn view() -> View {
        let rate = |topic: &str, hertz: f64| TopicRate {
            topic: topic.to_owned(),
            type_name: "sensor_msgs/msg/Imu".to_owned(),
            messages: 100,
            bytes: 10_000,
            hertz,
            bytes_per_second: hertz * 100.0,
            jitter: 0.0005,
            last: Some(Stamp::from_nanos(990_000_000)),
            lost: 3,
            stamps: asof::live::StampHealth::default(),
        };
        let mut view = View {
            status: "connected, tcp/robot:7447".to_owned(),
            ..View::default()
        };
        let rates = vec![
            rate("/imu", 200.0),
            rate("/slow", 1.0),
            rate("/fast", 400.0),
        ];
        view.look(rates, Stamp::from_nanos(1_000_000_000));
        view
    }

    fn drawn(view: &mut View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(90, 6)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(90);
        let text = |row: &[Cell]| row.iter().map(Cell::symbol).collect();
        rows.map(text)
            .map(|line: String| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn every_topic_is_a_row_under_its_columns() {
        let lines = drawn(&mut view());
        assert_eq!(lines[0], "3 topics · connected, tcp/robot:7447");
        assert_eq!(
            lines[1],
            "topic  type                   Hz  bandwidth  jitter      age  drops"
        );
        assert_eq!(
            lines[3],
            "/imu   sensor_msgs/msg/Imu   200  20.0 kB/s  500 µs  10.0 ms      3"
        );
        assert!(lines[5].starts_with("q quits"), "{lines:?}");
    }

    #[test]
    fn a_narrow_terminal_shows_numbers_with_their_units_or_not_at_all() {
        for width in 20..90_u16 {
            let mut terminal = Terminal::new(TestBackend::new(width, 6)).expect("a terminal");
            let mut view = view();
            terminal.draw(|frame| view.draw(frame)).expect("drawn");
            let buffer = terminal.backend().buffer();
            let row = buffer.content().chunks(usize::from(width)).nth(3);
            let row = row.expect("a row").iter().map(Cell::symbol);
            let row: String = row.collect();
            let mut words = row.split_whitespace();
            assert_eq!(words.next(), Some("/imu"), "{width}: {row}");
            let whole = ["200", "20.0", "kB/s", "500", "µs", "10.0", "ms", "3"];
            let is_whole = |word: &str| whole.contains(&word) || word.starts_with("sensor_msgs");
            assert!(words.all(is_whole), "{width}: {row}");
            let is_paired = |number: &str, unit: &str| row.contains(number) == row.contains(unit);
            assert!(
                is_paired("500", "500 µs") && is_paired("20.0", "20.0 kB/s"),
                "{row}"
            );
        }
    }

    #[test]
    fn s_sorts_by_rate_and_q_ends() {
        let mut view = view();
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert!(!view.press(key(KeyCode::Char('s'))));
        assert!(drawn(&mut view)[2].starts_with("/fast"));
        assert!(view.press(key(KeyCode::Char('q'))));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(view.press(interrupt));
    }

    #[test]
    fn a_terminal_without_room_is_no_failure() {
        let mut terminal = Terminal::new(TestBackend::new(3, 1)).expect("a terminal");
        let mut view = view();
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
    }
}
