//! Points at which a program kills itself, so that a test can see what its death just there leaves behind.
//!
//! Each program has one enum of what it does to the world, made by [`effects!`](crate::effects!), and names one of them
//! wherever it does something. What has no name does not compile there, and a test knows all names. A program that is
//! started with `BERTH_KILL_AT=agent:create_pod:before:1` dies as by `kill -9` when it comes to that point the first time.
//!
//! Only debug builds have the points: what ships looks at no variable. A cargo feature would do the same by a second
//! build of every program, or, in a build of the whole workspace, by putting the points into what ships.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

/// The variable that says where to die.
pub const VARIABLE: &str = "BERTH_KILL_AT";

/// What a program does to the world outside of it.
pub trait Effect: Copy + 'static {
    /// The program, in one word.
    const PROGRAM: &'static str;
    /// All of them.
    const ALL: &'static [Self];

    /// A short fixed word.
    fn word(self) -> &'static str;
}

/// Makes an enum of a program's effects, with a word for each.
///
/// ```
/// berth_runtime::effects! {
///     /// What the lamp does.
///     pub enum Effect of "lamp" {
///         /// Gives light.
///         Shine = "shine",
///     }
/// }
/// ```
#[macro_export]
macro_rules! effects {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident of $program:literal {
            $($(#[$of_variant:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name {
            $($(#[$of_variant])* $variant,)+
        }

        impl $crate::kill_point::Effect for $name {
            const PROGRAM: &'static str = $program;
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

/// On which side of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Nothing of it has happened.
    Before,
    /// It has happened, and nobody has taken note of it.
    After,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];

    const fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// A point at which a program dies: written `PROGRAM:EFFECT:SIDE:PASSAGE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KillPoint {
    program: String,
    effect: String,
    side: Side,
    /// The how manieth time it is passed.
    passage: u32,
}

impl KillPoint {
    /// The first passage of a point.
    pub fn new<E: Effect>(effect: E, side: Side) -> Self {
        Self { program: E::PROGRAM.to_owned(), effect: effect.word().to_owned(), side, passage: 1 }
    }

    /// The first passage of each point that a program has.
    #[must_use]
    pub fn all_of<E: Effect>() -> Vec<Self> {
        let both = |effect: &E| Side::ALL.map(|side| Self::new(*effect, side));
        E::ALL.iter().flat_map(both).collect()
    }

    /// What is written to the error output before it dies.
    #[must_use]
    pub fn last_words(&self) -> String {
        format!("killed at {self}")
    }
}

impl fmt::Display for KillPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, effect, side, passage } = self;
        write!(formatter, "{program}:{effect}:{}:{passage}", side.word())
    }
}

/// What is no point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE} is {text:?}; it must have the form PROGRAM:EFFECT:before:1, or with after and another number"
)]
pub struct KillPointError {
    text: String,
}

impl FromStr for KillPoint {
    type Err = KillPointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || KillPointError { text: text.to_owned() };
        let parts: Vec<&str> = text.split(':').collect();
        let [program, effect, side, passage] = parts[..] else { return Err(wrong()) };
        let side = Side::ALL.into_iter().find(|one| one.word() == side).ok_or_else(wrong)?;
        let passage = passage.parse().ok().filter(|passage| *passage > 0).ok_or_else(wrong)?;
        Ok(Self { program: program.to_owned(), effect: effect.to_owned(), side, passage })
    }
}

/// Passes a point, or dies there.
pub fn pass<E: Effect>(effect: E, side: Side) {
    #[cfg(debug_assertions)]
    armed::pass(E::PROGRAM, effect.word(), side);
    #[cfg(not(debug_assertions))]
    let _ = (effect, side);
}

/// Does something between its two points; the second is passed only when it was done.
///
/// # Errors
/// Those of what is done.
pub async fn around<E: Effect, T, F>(effect: E, done: impl Future<Output = Result<T, F>>) -> Result<T, F> {
    pass(effect, Side::Before);
    let outcome = done.await;
    if outcome.is_ok() {
        pass(effect, Side::After);
    }
    outcome
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::{KillPoint, Side, VARIABLE};

    struct Armed {
        point: KillPoint,
        passed: AtomicU32,
    }

    /// Of the process, as its death is.
    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).ok()?;
        match text.parse() {
            Ok(point) => Some(Armed { point, passed: AtomicU32::new(0) }),
            Err(error) => {
                eprintln!("{error}");
                None
            }
        }
    });

    pub(super) fn pass(program: &str, effect: &str, side: Side) {
        let Some(Armed { point, passed }) = &*ARMED else { return };
        let is_here = point.program == program && point.effect == effect && point.side == side;
        if is_here && passed.fetch_add(1, Ordering::Relaxed) + 1 == point.passage {
            eprintln!("{}", point.last_words());
            // It does not come back from this.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    crate::effects! {
        /// What a lamp does.
        enum Lamp of "lamp" {
            /// Gives light.
            Shine = "shine",
            /// Gives none.
            GoOut = "go_out",
        }
    }

    #[test]
    fn all_points_of_a_program_are_known_and_can_be_written() {
        let points = KillPoint::all_of::<Lamp>();
        let written: Vec<String> = points.iter().map(ToString::to_string).collect();
        let expected =
            ["lamp:shine:before:1", "lamp:shine:after:1", "lamp:go_out:before:1", "lamp:go_out:after:1"];
        assert_eq!(written, expected);
        for (text, point) in written.iter().zip(points) {
            assert_eq!(text.parse(), Ok(point));
        }
        for wrong in ["", "lamp:shine", "lamp:shine:beside:1", "lamp:shine:after:0", "lamp:shine:after:1:1"] {
            assert!(wrong.parse::<KillPoint>().is_err(), "{wrong}");
        }
    }

    /// Set in the processes that the test below starts, to see them die.
    const LAMP: &str = "BERTH_TEST_LAMP";

    async fn shine_and_go_out() {
        let failed: Result<(), ()> = around(Lamp::Shine, async { Err(()) }).await;
        let done: Result<(), ()> = around(Lamp::Shine, async { Ok(()) }).await;
        assert_eq!((failed, done), (Err(()), Ok(())));
        pass(Lamp::GoOut, Side::Before);
    }

    #[tokio::test]
    async fn a_program_dies_at_its_point_and_nowhere_else() {
        if std::env::var_os(LAMP).is_some() {
            return shine_and_go_out().await;
        }
        let itself = std::env::current_exe().expect("this program");
        let rows = [
            ("lamp:shine:before:1", true),
            ("lamp:shine:before:2", true),
            ("lamp:shine:after:1", true),
            ("lamp:shine:after:2", false),
            ("lamp:shine:before:3", false),
            ("lamp:go_out:before:1", true),
            ("lamp:go_out:after:1", false),
            ("stove:shine:before:1", false),
        ];
        for (point, dies) in rows {
            let name = "kill_point::tests::a_program_dies_at_its_point_and_nowhere_else";
            let mut lamp = Command::new(&itself);
            lamp.args(["--exact", name, "--nocapture"]).env(LAMP, "1").env(VARIABLE, point);
            let ended = lamp.output().expect("runs");
            let signal = dies.then_some(9);
            assert_eq!(ended.status.signal(), signal, "{point}: {ended:?}");
            let said = String::from_utf8_lossy(&ended.stderr).contains(&format!("killed at {point}"));
            assert_eq!(said, dies, "{point}");
            assert_eq!(ended.status.success(), !dies, "{point}: {ended:?}");
        }
    }
}
