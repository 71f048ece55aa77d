//! What stands where on the screen: a pure function of the picture, its past and the size.
//!
//! A wide terminal has the loss over the events on the left, and the peers on the right. A narrow
//! one has the three one below another, and a small one has sentences alone.
//!
//! Nothing here reads a clock or remembers anything: the same view gives the same screen. Colours
//! are those that every terminal has by name, so that a person's own theme applies.

use ratatui::{
    Frame,
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    symbols::Marker,
    text::{Line, Span},
    widgets::{
        Axis as ChartAxis, Block, Borders, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table,
        Widget as _, Wrap,
    },
};

use crate::{
    history::Columns,
    lines::{self, Mood, short, span},
    picture::{Peer, Picture},
    record::Text,
};

use super::said::{Kind, Said};

/// Everything that the screen shows.
pub(super) struct View<'a> {
    /// The newest published picture.
    pub(super) picture: &'a Picture,
    /// The past in about two rows for each column of the terminal.
    pub(super) past: &'a Columns,
    /// What the loss is drawn against.
    pub(super) axis: Axis,
    /// What the caller wants to stand at the foot.
    pub(super) note: &'a str,
    /// What the program says, if it has no other place for it. It stands in place of the events.
    pub(super) said: Option<&'a Said>,
}

/// What the loss is drawn against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// Committed tokens of the run.
    Tokens,
    /// Time since the first row that is drawn.
    Time,
    /// Epochs of the run, by their number.
    Epochs,
}

impl Axis {
    /// The axis that the key `t` changes to.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Tokens => Self::Time,
            Self::Time => Self::Epochs,
            Self::Epochs => Self::Tokens,
        }
    }

    /// The name of the axis, for the title and the foot.
    fn word(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Time => "time",
            Self::Epochs => "epochs",
        }
    }

    /// The x of each row of the past.
    fn values(self, past: &Columns) -> &[u64] {
        match self {
            Self::Tokens => &past.tokens,
            Self::Time => &past.t_ms,
            Self::Epochs => &past.epoch,
        }
    }

    /// A value beside the axis. Time is that since `first`.
    fn said(self, value: f64, first: f64) -> String {
        match self {
            Self::Tokens | Self::Epochs => short(value),
            Self::Time => span((value - first) as u64),
        }
    }
}

impl View<'_> {
    /// Draws all panes, or on a small terminal the lines alone.
    /// The verdict takes as many rows as it needs, and the body the rest.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
            return self.small(frame, area);
        }
        let verdict = self.verdict();
        let rows = rows(&verdict, area.width);
        let parts = [
            Constraint::Length(rows),
            Constraint::Length(LINES),
            Constraint::Min(8),
            Constraint::Length(1),
        ];
        let [head, under, body, foot] = Layout::vertical(parts).areas(area);
        frame.render_widget(verdict, head);
        let drawn = lines::lines(self.picture, usize::from(area.width)).map(Line::raw);
        frame.render_widget(Paragraph::new(Vec::from(drawn)), under);
        frame.render_widget(self.keys(), foot);
        let (loss, peers, news) = if area.width >= COLUMNS_WIDE {
            let [left, right] =
                Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(body);
            let [loss, news] =
                Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(left);
            (loss, right, news)
        } else {
            let shares = [Constraint::Fill(5), Constraint::Fill(4), Constraint::Fill(3)];
            let [loss, peers, news] = Layout::vertical(shares).areas(body);
            (loss, peers, news)
        };
        self.loss(frame, loss);
        self.peers(frame, peers);
        self.news(frame, news);
    }

    /// The verdict and the lines, for a terminal that has no room for panes.
    fn small(&self, frame: &mut Frame<'_>, area: Rect) {
        let verdict = lines::verdict(self.picture);
        let mut all = vec![Line::styled(verdict.sentence, mood(verdict.mood))];
        all.extend(lines::lines(self.picture, usize::from(area.width)).map(Line::raw));
        all.push(Line::styled(format!("needs {COLUMNS_MIN}×{ROWS_MIN}, q ends"), faint()));
        frame.render_widget(Paragraph::new(all).wrap(Wrap { trim: true }), area);
    }

    /// The run, and the verdict with its cure, over as many rows as they take.
    fn verdict(&self) -> Paragraph<'_> {
        let run = &self.picture.run;
        let name = run.name.as_ref().map_or("intellect", Text::as_str);
        let id = run.id.as_ref().map_or("", |id| id.as_str().get(..8).unwrap_or_default());
        let verdict = lines::verdict(self.picture);
        let sentence =
            Span::styled(verdict.sentence, mood(verdict.mood).add_modifier(Modifier::BOLD));
        let cure = verdict.cure.map_or_else(String::new, |cure| format!(" {cure}"));
        let run = Span::styled(format!("{name} {id}  "), faint());
        let text = Line::from(vec![run, sentence, Span::raw(cure)]);
        Paragraph::new(text).wrap(Wrap { trim: true })
    }

    /// The foot: what the keys do, and the caller's note.
    fn keys(&self) -> Paragraph<'_> {
        let keys = format!("q ends · t loss against {} ", self.axis.next().word());
        Paragraph::new(Line::from(vec![Span::styled(keys, faint()), Span::raw(self.note)]))
    }

    /// The chart of losses over all that is known. Training is the node's own loss, held-out that
    /// of a simulation.
    ///
    /// Its scale is that of all points, from the least to the greatest, so no part of the past is
    /// out of sight. A chart without a point says so.
    fn loss(&self, frame: &mut Frame<'_>, area: Rect) {
        let title = format!(" loss, nats per token, against {} ", self.axis.word());
        let block = Block::new().borders(Borders::TOP).title(title).border_style(faint());
        let x = self.axis.values(self.past);
        let points = |name: &str| -> Vec<(f64, f64)> {
            let values = self.past.numbers(name);
            let pairs = x.iter().map(|x| *x as f64).zip(values);
            pairs.filter_map(|(x, y)| Some((x, y?))).collect()
        };
        let series = [
            ("training", points("loss"), Color::Blue),
            ("held-out", points("held_out"), Color::Yellow),
        ];
        let all = || series.iter().flat_map(|(_, points, _)| points.iter().copied());
        let Some((first, _)) = all().next() else {
            return frame.render_widget(Paragraph::new("nothing yet").block(block), area);
        };
        let ends = |part: fn((f64, f64)) -> f64| {
            let low = all().map(part).fold(f64::INFINITY, f64::min);
            let high = all().map(part).fold(f64::NEG_INFINITY, f64::max);
            // A chart of one point needs a width.
            if high > low { [low, high] } else { [low, low + 1.0] }
        };
        let ([x0, x1], [y0, y1]) = (ends(|(x, _)| x), ends(|(_, y)| y));
        let middle = |low: f64, high: f64| low + (high - low) / 2.0;
        let across = [x0, middle(x0, x1), x1].map(|x| self.axis.said(x, first));
        let up = [y0, middle(y0, y1), y1].map(|y| format!("{y:.3}"));
        let shown = series.iter().filter(|(_, points, _)| !points.is_empty());
        let sets = shown.map(|(name, points, color)| {
            let set = Dataset::default().name(*name).data(points).style(Style::new().fg(*color));
            set.marker(Marker::Braille).graph_type(GraphType::Line)
        });
        let chart = Chart::new(sets.collect())
            .block(block)
            .hidden_legend_constraints((Constraint::Percentage(50), Constraint::Percentage(60)))
            .x_axis(ChartAxis::default().bounds([x0, x1]).labels(across).style(faint()))
            .y_axis(ChartAxis::default().bounds([y0, y1]).labels(up).style(faint()));
        frame.render_widget(chart, area);
    }

    /// The table of peers, by their tokens. At most as many as there is room for, and the title
    /// says of how many. A bar is a share of the most tokens that a peer has.
    ///
    /// States are words for those who see no colours: `receipts` is a peer that only receipts name.
    fn peers(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut peers: Vec<(&Text, &Peer)> = self.picture.peers.iter().collect();
        peers.sort_by_key(|(name, peer)| (std::cmp::Reverse(peer.tokens), *name));
        let most = peers.iter().map(|(_, peer)| peer.tokens).max().unwrap_or(0).max(1);
        let room = usize::from(area.height.saturating_sub(2));
        let title = match peers.len() {
            all if all > room => format!(" peers, {room} of {all} "),
            all => format!(" peers, {all} "),
        };
        let own = self.picture.node.peer.as_ref();
        let rows = peers.into_iter().take(room).map(|(name, peer)| {
            let (state, style) = match peer.here {
                _ if own == Some(name) => ("this node", Style::new().fg(Color::Yellow)),
                Some(true) => ("here", Style::new()),
                Some(false) => ("gone", Style::new().fg(Color::Red)),
                None => ("receipts", faint()),
            };
            let full = usize::try_from(peer.tokens.saturating_mul(BAR) / most).unwrap_or(0);
            Row::new([
                Cell::from(name.short().to_owned()),
                Cell::from(state).style(style),
                Cell::from("█".repeat(full)).style(Style::new().fg(Color::Blue)),
                Cell::from(short(peer.tokens as f64)),
                Cell::from(peer.epochs.to_string()),
            ])
        });
        let widths = [
            Constraint::Length(6),
            Constraint::Length(9),
            Constraint::Length(BAR as u16),
            Constraint::Length(7),
            Constraint::Fill(1),
        ];
        let head = Row::new(["peer", "state", "tokens", "", "epochs"]).style(faint());
        let block = Block::new().borders(Borders::TOP).title(title).border_style(faint());
        frame.render_widget(Table::new(rows, widths).header(head).block(block), area);
    }

    /// The events, or what the program says.
    fn news(&self, frame: &mut Frame<'_>, area: Rect) {
        let room = usize::from(area.height.saturating_sub(1));
        let (title, text) = match self.said {
            Some(said) => (" what it says, UTC ", sentences(said, room, self.picture.now_ms)),
            None => (" events, UTC ", self.notices(room)),
        };
        let block = Block::new().borders(Borders::TOP).title(title).border_style(faint());
        let text = Paragraph::new(text).wrap(Wrap { trim: false });
        frame.render_widget(text.block(block), area);
    }

    /// The newest events first, as many as there are rows.
    /// An event that is wrapped takes several, so the oldest may be below the edge.
    fn notices(&self, room: usize) -> Vec<Line<'_>> {
        let now_ms = self.picture.now_ms;
        let newest = self.picture.notices.iter().rev().take(room);
        let line = newest.map(|notice| {
            let epoch = notice.epoch.map_or_else(String::new, |epoch| format!("epoch {epoch} "));
            let color = match &*notice.kind {
                "bad" => Color::Red,
                "wait" | "fork" => Color::Yellow,
                "join" | "start" => Color::Green,
                _ => Color::Reset,
            };
            Line::from(vec![
                Span::styled(format!("{} {epoch}", clock(notice.t_ms, now_ms)), faint()),
                Span::styled(&*notice.text, Style::new().fg(color)),
            ])
        });
        line.collect()
    }
}

/// The rows that a wrapped text takes, 1 to `VERDICT_ROWS`. It is drawn aside, where nobody sees it:
/// another way of counting could come to another number.
fn rows(text: &Paragraph<'_>, width: u16) -> u16 {
    let area = Rect::new(0, 0, width, VERDICT_ROWS);
    let mut aside = Buffer::empty(area);
    text.render(area, &mut aside);
    let is_used = |row: &u16| (0..width).any(|column| aside[(column, *row)].symbol() != " ");
    (0..VERDICT_ROWS).rev().find(is_used).map_or(1, |last| last + 1)
}

/// The newest sentences first. A long one takes several rows, so the oldest may be below the edge.
fn sentences(said: &Said, room: usize, now_ms: u64) -> Vec<Line<'static>> {
    let line = said.newest_first(room).into_iter().map(|sentence| {
        let color = match sentence.kind {
            Kind::News => Color::Reset,
            Kind::Warning => Color::Yellow,
        };
        Line::from(vec![
            Span::styled(format!("{} ", clock(sentence.t_ms, now_ms)), faint()),
            Span::styled(sentence.text.to_string(), Style::new().fg(color)),
        ])
    });
    line.collect()
}

/// The colour of a verdict: green, yellow, red or grey.
fn mood(mood: Mood) -> Style {
    Style::new().fg(match mood {
        Mood::Good => Color::Green,
        Mood::Wait => Color::Yellow,
        Mood::Bad => Color::Red,
        Mood::Ended => Color::Gray,
    })
}

/// The colour of what is always there.
fn faint() -> Style {
    Style::new().fg(Color::DarkGray)
}

/// The time of day of Unix milliseconds, in UTC, behind the days that have passed until `now_ms`.
fn clock(t_ms: u64, now_ms: u64) -> String {
    let (seconds, days) = (t_ms / 1_000, (now_ms / DAY_MS).saturating_sub(t_ms / DAY_MS));
    let ago = if days > 0 { format!("{days} d ago, ") } else { String::new() };
    format!("{ago}{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Below this width or height the lines stand alone: a chart needs room for its labels.
const COLUMNS_MIN: u16 = 60;
/// The least height, counted in rows of the terminal.
const ROWS_MIN: u16 = 16;
/// A verdict and its cure take at most so many rows.
const VERDICT_ROWS: u16 = 3;
/// The three lines beneath the verdict.
const LINES: u16 = 3;
/// From this width on peers stand beside the loss.
const COLUMNS_WIDE: u16 = 110;
/// A day, in milliseconds of the clock.
const DAY_MS: u64 = 86_400_000;
/// Characters of the longest bar.
const BAR: u64 = 16;
