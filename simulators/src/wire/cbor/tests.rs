//! Bytes that real clients and servers send, and every kind of value both ways.

use proptest::prelude::*;

use super::*;
use crate::wire::value::Members;

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.split_whitespace().collect::<String>();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_request_of_a_real_client_is_read() {
    let body = bytes(
        "bf 73 47616d6553657276657247726f75704e616d65 66 7076702d6575
         6c 47616d655365727665724964 73 692d3066336139633262376431653435363830 ff",
    );
    assert_eq!(body.len(), 62);
    let expected =
        Members::new().with("GameServerGroupName", "pvp-eu").with("GameServerId", "i-0f3a9c2b7d1e45680");
    assert_eq!(read(&body).unwrap(), Value::from(expected));
}

#[test]
fn a_refusal_is_written_as_the_service_does() {
    let refusal = Members::new()
        .with("__type", "com.amazonaws.gamelift#ConflictException")
        .with("Message", "already claimed");
    let expected = bytes(
        "a2 66 5f5f74797065 78 28 636f6d2e616d617a6f6e6177732e67616d656c69667423436f6e666c696374457863657074696f6e
         67 4d657373616765 6f 616c726561647920636c61696d6564",
    );
    assert_eq!(write(&refusal.into(), Style::default()), expected);
}

#[test]
fn a_time_is_tag_one_and_a_float_or_an_integer() {
    let time = Value::Time(Timestamp::from_millisecond(1_790_000_000_250).unwrap());
    assert_eq!(write(&time, Style::default()), bytes("c1 fb 41daac4ee0100000"));
    assert_eq!(read(&bytes("c1 fb 41daac4ee0100000")).unwrap(), time);
    let whole = Style { has_integer_times: true, ..Style::default() };
    assert_eq!(write(&time, whole), bytes("c1 1a 6ab13b80"));
    let second = Value::Time(Timestamp::from_second(1_790_000_000).unwrap());
    assert_eq!(read(&bytes("c1 1a 6ab13b80")).unwrap(), second);
}

#[test]
fn numbers_of_every_width_are_read() {
    for (hex, expected) in [
        ("07", Value::Integer(7)),
        ("18 07", Value::Integer(7)),
        ("19 0007", Value::Integer(7)),
        ("1a 00000007", Value::Integer(7)),
        ("1b 0000000000000007", Value::Integer(7)),
        ("20", Value::Integer(-1)),
        ("38 63", Value::Integer(-100)),
        ("f9 3c00", Value::Float(1.0)),
        ("f9 0001", Value::Float(5.960_464_477_539_063e-8)),
        ("fa 3fc00000", Value::Float(1.5)),
        ("fb 3ff199999999999a", Value::Float(1.1)),
        ("f5", Value::Bool(true)),
        ("f6", Value::Null),
    ] {
        assert_eq!(read(&bytes(hex)), Ok(expected), "{hex}");
    }
}

#[test]
fn text_and_lists_come_with_and_without_a_length() {
    let expected = Value::List(vec![Value::from("abc"), Value::from("d")]);
    for hex in ["82 63616263 6164", "9f 63616263 6164 ff", "82 7f 62 6162 61 63 ff 6164"] {
        assert_eq!(read(&bytes(hex)), Ok(expected.clone()), "{hex}");
    }
}

#[test]
fn an_empty_map_is_one_byte_or_two() {
    let empty = Value::Map(Vec::new());
    assert_eq!(write(&empty, Style::default()), bytes("a0"));
    assert_eq!(write(&empty, Style { is_indefinite: true, ..Style::default() }), bytes("bf ff"));
    assert_eq!(read(b""), Ok(empty));
}

#[test]
fn what_is_cut_or_strange_is_an_error() {
    for hex in
        ["bf", "63 6162", "1c", "a1 01 01", "a0 a0", "9f 01", "ff", "c1 61 61", "7f 01 ff", "5f", "61 ff"]
    {
        assert!(read(&bytes(hex)).is_err(), "{hex}");
    }
    assert!(read(&[0x81; 1000]).is_err(), "too deep");
    assert_eq!(read(&bytes("9b ffffffffffffffff 01")), Err(CborError::Cut), "a length that is a lie");
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Integer),
        any::<i32>().prop_map(|number| Value::Float(f64::from(number) / 8.0)),
        ".{0,40}".prop_map(Value::Text),
        (0i64..4_000_000_000_000).prop_map(|time| Value::Time(Timestamp::from_millisecond(time).unwrap())),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            prop::collection::vec((".{0,10}", inner), 0..6).prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in values(), is_indefinite: bool) {
        let style = Style { is_indefinite, has_integer_times: false };
        prop_assert_eq!(read(&write(&value, style)), Ok(value));
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&body));
    }
}
