//! The demo server with dice, units and the time. It speaks the modern era alone.
//!
//! Must not know: transports.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::echo::ECHO;
use super::protocol::Server;
use super::tool::{Arguments, Output, Run, Tool};
use crate::mcp::Era;

/// The server.
pub(super) static SERVER: Server = Server {
    name: "dice",
    instructions: "Rolls dice, converts units, and tells the time.",
    eras: &[Era::Modern],
    tools: &[&ROLL_DICE, &CONVERT_UNITS, &CURRENT_TIME, &ECHO],
};

static ROLL_DICE: Tool = Tool {
    name: "roll_dice",
    definition: r#"{"name":"roll_dice","title":"Roll dice","description":"Rolls dice. The same seed gives the same roll.","inputSchema":{"type":"object","properties":{"count":{"type":"integer","minimum":1,"maximum":100,"default":1,"description":"How many dice."},"sides":{"type":"integer","minimum":2,"maximum":1000,"default":6,"description":"Sides of each."},"seed":{"type":"integer","description":"Makes the roll repeatable."}}},"outputSchema":{"type":"object","properties":{"rolls":{"type":"array","items":{"type":"integer"}},"total":{"type":"integer"}},"required":["rolls","total"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
    run: Run::Now(roll_dice),
};

fn roll_dice(arguments: &Arguments) -> Result<Output, String> {
    let count = arguments.integer("count", 1, 1, 100)?;
    let sides = arguments.integer("sides", 6, 2, 1000)?.unsigned_abs();
    let mut state = match arguments.has("seed") {
        true => arguments.integer("seed", 0, i64::MIN, i64::MAX)?.cast_unsigned(),
        // Hash maps are seeded from the system's randomness.
        false => RandomState::new().hash_one(count),
    };
    let rolls: Vec<u64> = (0..count).map(|_| below(&mut state, sides) + 1).collect();
    let total: u64 = rolls.iter().sum();
    Ok(Output::data(json!({"rolls": rolls, "total": total})))
}

/// A number below `bound`, from SplitMix64.
fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    u64::try_from((u128::from(mixed) * u128::from(bound)) >> 64).unwrap_or_default()
}

static CONVERT_UNITS: Tool = Tool {
    name: "convert_units",
    definition: r#"{"name":"convert_units","title":"Convert units","description":"Converts a length (mm, cm, m, km, in, ft, mi), a mass (g, kg, oz, lb) or a temperature (C, F, K).","inputSchema":{"type":"object","properties":{"value":{"type":"number","description":"How much."},"from":{"type":"string","description":"The unit it is in."},"to":{"type":"string","description":"The unit wanted."}},"required":["value","from","to"]},"outputSchema":{"type":"object","properties":{"value":{"type":"number"},"unit":{"type":"string"}},"required":["value","unit"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}"#,
    run: Run::Now(convert_units),
};

/// A unit: its name, what it measures, and how to get to the base of that: `value * factor + offset`.
struct Unit {
    name: &'static str,
    measures: &'static str,
    factor: f64,
    offset: f64,
}

const fn unit(name: &'static str, measures: &'static str, factor: f64, offset: f64) -> Unit {
    Unit { name, measures, factor, offset }
}

static UNITS: [Unit; 14] = [
    unit("mm", "length", 0.001, 0.0),
    unit("cm", "length", 0.01, 0.0),
    unit("m", "length", 1.0, 0.0),
    unit("km", "length", 1000.0, 0.0),
    unit("in", "length", 0.0254, 0.0),
    unit("ft", "length", 0.3048, 0.0),
    unit("mi", "length", 1609.344, 0.0),
    unit("g", "mass", 0.001, 0.0),
    unit("kg", "mass", 1.0, 0.0),
    unit("oz", "mass", 0.028_349_523_125, 0.0),
    unit("lb", "mass", 0.453_592_37, 0.0),
    unit("C", "temperature", 1.0, 273.15),
    unit("F", "temperature", 5.0 / 9.0, 459.67 * 5.0 / 9.0),
    unit("K", "temperature", 1.0, 0.0),
];

fn convert_units(arguments: &Arguments) -> Result<Output, String> {
    let value = arguments.number("value")?;
    let find = |key: &str| {
        let name = arguments.text(key)?;
        let found = UNITS.iter().find(|unit| unit.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = UNITS.iter().map(|unit| unit.name).collect();
            format!("`{key}`: the unit is not known; known are {}", names.join(", "))
        })
    };
    let (from, to) = (find("from")?, find("to")?);
    if from.measures != to.measures {
        return Err(format!("{} is a {}, {} is a {}", from.name, from.measures, to.name, to.measures));
    }
    let result = (value * from.factor + from.offset - to.offset) / to.factor;
    // Nine digits behind the point: what binary fractions add behind them nobody asked for.
    let rounded = (result * 1e9).round() / 1e9;
    Ok(Output::data(json!({"value": rounded, "unit": to.name})))
}

static CURRENT_TIME: Tool = Tool {
    name: "current_time",
    definition: r#"{"name":"current_time","title":"Current time","description":"Tells the date and time, at an offset from UTC.","inputSchema":{"type":"object","properties":{"utc_offset_minutes":{"type":"integer","minimum":-1080,"maximum":1080,"default":0,"description":"Minutes east of Greenwich."}}},"annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
    run: Run::Now(current_time),
};

fn current_time(arguments: &Arguments) -> Result<Output, String> {
    let offset = arguments.integer("utc_offset_minutes", 0, -1080, 1080)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| "the clock is before 1970")?;
    let seconds = i64::try_from(now.as_secs()).map_err(|_| "the clock is far in the future")?;
    Ok(Output::text(&iso_time(seconds, offset)))
}

/// A time of the Unix clock at an offset from UTC, as ISO 8601.
fn iso_time(unix_seconds: i64, offset_minutes: i64) -> String {
    let local = unix_seconds + offset_minutes * 60;
    let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let sign = if offset_minutes < 0 { '-' } else { '+' };
    let (off_hour, off_minute) = (offset_minutes.abs() / 60, offset_minutes.abs() % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}{sign}{off_hour:02}:{off_minute:02}",
        second % 60
    )
}

/// The date that lies so many days after 1970-01-01 in the Gregorian calendar. Counts years from March on,
/// so that the leap day is the last of a year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::mcp::Raw;

    fn arguments(text: &'static str) -> Arguments {
        Arguments::new(Some(Raw::trusted(Bytes::from_static(text.as_bytes()))))
    }

    #[test]
    fn a_seed_repeats_the_roll() {
        let roll = |text| roll_dice(&arguments(text)).unwrap().structured.unwrap();
        assert_eq!(roll(r#"{"count":5,"seed":7}"#), roll(r#"{"count":5,"seed":7}"#));
        assert_ne!(roll(r#"{"count":20,"seed":7}"#), roll(r#"{"count":20,"seed":8}"#));
        assert_ne!(roll(r#"{"count":20}"#), roll(r#"{"count":20}"#));
        assert!(roll_dice(&arguments(r#"{"sides":1}"#)).is_err());
        assert!(roll_dice(&arguments(r#"{"count":"2"}"#)).is_err());
    }

    proptest! {
        #[test]
        fn dice_show_one_of_their_sides(seed: u64, sides in 2_u64..1000) {
            let mut state = seed;
            prop_assert!(below(&mut state, sides) < sides);
        }
    }

    #[test]
    fn units_convert_there_and_back() {
        for (text, expected) in [
            (r#"{"value":1,"from":"mi","to":"km"}"#, 1.609_344),
            (r#"{"value":100,"from":"C","to":"F"}"#, 212.0),
            (r#"{"value":-40,"from":"F","to":"C"}"#, -40.0),
            (r#"{"value":1,"from":"lb","to":"g"}"#, 453.592_37),
        ] {
            let output = convert_units(&arguments(text)).unwrap().structured.unwrap();
            assert_eq!(output["value"].as_f64().unwrap(), expected, "{text}");
        }
        assert!(convert_units(&arguments(r#"{"value":1,"from":"kg","to":"m"}"#)).is_err());
        assert!(convert_units(&arguments(r#"{"value":1,"from":"parsec","to":"m"}"#)).is_err());
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(iso_time(0, 0), "1970-01-01T00:00:00+00:00");
        assert_eq!(iso_time(951_782_400, 0), "2000-02-29T00:00:00+00:00");
        assert_eq!(iso_time(1_785_196_800, -90), "2026-07-27T22:30:00-01:30");
        assert_eq!(iso_time(-1, 0), "1969-12-31T23:59:59+00:00");
    }
}
