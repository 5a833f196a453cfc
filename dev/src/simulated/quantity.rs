//! Quantities of resources as Kubernetes writes them, in thousandths. Pure.

/// Thousandths of the unit; what is finer is rounded up, as Kubernetes does.
pub(super) fn milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(at, letter)| !(letter.is_ascii_digit() || *letter == '.' || (*at == 0 && *letter == '+')))
        .map_or(text.len(), |(at, _)| at);
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.trim_start_matches('+').split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let mantissa: i128 = digits.parse().ok()?;
    let decimals = u32::try_from(fraction.len()).ok()?;
    let (factor, divisor) = scale(unit)?;
    let numerator = mantissa.checked_mul(factor)?.checked_mul(1000)?;
    let denominator = divisor.checked_mul(10_i128.checked_pow(decimals)?)?;
    Some((numerator + denominator - 1) / denominator)
}

fn scale(unit: &str) -> Option<(i128, i128)> {
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = binary.iter().position(|name| *name == unit) {
        return Some((1_i128 << (10 * (at + 1)), 1));
    }
    let decimal = ["", "k", "M", "G", "T", "P", "E"];
    if let Some(at) = decimal.iter().position(|name| *name == unit) {
        return Some((1000_i128.pow(u32::try_from(at).ok()?), 1));
    }
    let small = ["m", "u", "n"];
    if let Some(at) = small.iter().position(|name| *name == unit) {
        return Some((1, 1000_i128.pow(u32::try_from(at + 1).ok()?)));
    }
    let exponent: i32 = unit.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let table = [
            ("1", Some(1000)),
            ("100m", Some(100)),
            ("0.1", Some(100)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("2k", Some(2_000_000)),
            ("1e3", Some(1_000_000)),
            ("1n", Some(1)),
            ("+1", Some(1000)),
            ("", None),
            ("many", None),
            ("1Q", None),
        ];
        for (text, expected) in table {
            assert_eq!(milli(text), expected, "{text}");
        }
    }
}
