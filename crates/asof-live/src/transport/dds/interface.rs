//! The IP addresses of a network interface.

use std::net::{IpAddr, Ipv4Addr};

use crate::{AddressError, LiveError};

/// The IP addresses of a network interface of this machine, by its name or one of its addresses.
pub(super) fn numbers_of(name: &str) -> Result<Vec<IpAddr>, LiveError> {
    if name == "localhost" {
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    let found = if_addrs::get_if_addrs().map_err(|cause| LiveError::Dds {
        what: "cannot list the network interfaces of this machine".to_owned(),
        cause: cause.to_string(),
    })?;
    let number: Option<IpAddr> = name.parse().ok();
    let is_meant =
        |one: &&if_addrs::Interface| number.map_or(one.name == name, |number| one.ip() == number);
    let numbers: Vec<IpAddr> = found
        .iter()
        .filter(is_meant)
        .map(if_addrs::Interface::ip)
        .collect();
    if numbers.is_empty() {
        let mut known: Vec<String> = found
            .iter()
            .map(|one| format!("{} ({})", one.name, one.ip()))
            .collect();
        known.sort();
        let text = format!("{name}: there are {}", known.join(", "));
        return Err(AddressError::Dds(text).into());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_name_and_by_number() {
        let all = if_addrs::get_if_addrs().expect("interfaces");
        let loopback = all.iter().find(|one| one.is_loopback()).expect("loopback");
        assert!(
            numbers_of(&loopback.name)
                .expect("there")
                .contains(&loopback.ip())
        );
        let number = loopback.ip().to_string();
        assert_eq!(numbers_of(&number).expect("there"), [loopback.ip()]);
    }

    #[test]
    fn one_that_is_not_there_is_an_error_that_names_those_that_are() {
        let error = numbers_of("wlan77").expect_err("not there").to_string();
        assert!(
            error.contains("wlan77") && error.contains("127.0.0.1"),
            "{error}"
        );
    }
}
