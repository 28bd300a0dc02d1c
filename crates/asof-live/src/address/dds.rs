//! Addresses of robots on DDS: `dds://?domain=0`.

use std::fmt;
use std::str::FromStr;

use super::{AddressError, is_of_a_name};

/// The highest domain whose ports are valid.
const MOST_DOMAIN: u16 = 232;

/// A DDS domain, and the network interface to reach it.
///
/// `dds://` alone is the domain of `ROS_DOMAIN_ID`, or 0, on all interfaces; with `ROS_LOCALHOST_ONLY=1` or
/// `ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST` on this machine only. An interface of this machine is given by name or IP
/// address: `dds://wlan0`, `dds://192.168.1.20?domain=3`, `dds://localhost`.
///
/// ```
/// use asof_live::DdsAddress;
///
/// let address: DdsAddress = "dds://localhost?domain=3".parse()?;
/// assert_eq!((address.domain, address.interface.as_deref()), (Some(3), Some("localhost")));
/// assert_eq!(address.to_string(), "dds://localhost?domain=3");
/// # Ok::<(), asof_live::AddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DdsAddress {
    /// The domain; `None` takes it from the environment.
    pub domain: Option<u16>,
    /// The interface, by name or IP address; `None` takes it from the environment, or uses all interfaces.
    pub interface: Option<String>,
}

impl FromStr for DdsAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text
            .strip_prefix("dds://")
            .ok_or_else(|| AddressError::Scheme(text.to_owned()))?;
        let (interface, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let interface = interface.trim_end_matches('/');
        let bare = interface
            .strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(interface);
        let is_name = |letter: char| (is_of_a_name(letter) && letter != '*') || letter == ':';
        if !bare.chars().all(is_name) {
            return Err(AddressError::Dds(interface.to_owned()));
        }
        let mut address = DdsAddress {
            domain: None,
            interface: (!bare.is_empty()).then(|| bare.to_owned()),
        };
        for parameter in parameters.split('&').filter(|part| !part.is_empty()) {
            let wrong = || AddressError::Dds(parameter.to_owned());
            match parameter.split_once('=').ok_or_else(wrong)? {
                ("domain", number) => address.domain = Some(domain(number).ok_or_else(wrong)?),
                ("interface", name) if !name.is_empty() && name.chars().all(is_name) => {
                    address.interface = Some(name.to_owned());
                }
                _ => return Err(wrong()),
            }
        }
        Ok(address)
    }
}

impl fmt::Display for DdsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dds://{}", self.interface.as_deref().unwrap_or_default())?;
        match self.domain {
            Some(domain) => write!(f, "?domain={domain}"),
            None => Ok(()),
        }
    }
}

impl DdsAddress {
    /// Fills in what the address leaves open from the environment: `ROS_DOMAIN_ID`, `ROS_LOCALHOST_ONLY` and
    /// `ROS_AUTOMATIC_DISCOVERY_RANGE`.
    ///
    /// # Errors
    /// When `ROS_DOMAIN_ID` is not a domain.
    pub fn in_environment(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, AddressError> {
        let said = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number = match (self.domain, said("ROS_DOMAIN_ID")) {
            (Some(said), _) => Some(said),
            (None, Some(text)) => {
                let wrong = || AddressError::Dds(format!("ROS_DOMAIN_ID={text}"));
                Some(domain(&text).ok_or_else(wrong)?)
            }
            (None, None) => None,
        };
        let is_local = said("ROS_LOCALHOST_ONLY").is_some_and(|value| value == "1")
            || said("ROS_AUTOMATIC_DISCOVERY_RANGE").is_some_and(|value| value == "LOCALHOST");
        let interface = self.interface.clone();
        Ok(DdsAddress {
            domain: number,
            interface: interface.or_else(|| is_local.then(|| "localhost".to_owned())),
        })
    }
}

fn domain(text: &str) -> Option<u16> {
    text.trim()
        .parse()
        .ok()
        .filter(|domain| *domain <= MOST_DOMAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> DdsAddress {
        text.parse().expect("an address")
    }

    #[test]
    fn the_environment_says_what_the_address_does_not() {
        let environment = |name: &str| match name {
            "ROS_DOMAIN_ID" => Some("42".to_owned()),
            "ROS_LOCALHOST_ONLY" => Some("1".to_owned()),
            _ => None,
        };
        let found = read("dds://")
            .in_environment(environment)
            .expect("an address");
        assert_eq!(found, read("dds://localhost?domain=42"));
        let told = read("dds://wlan0?domain=7");
        assert_eq!(told.in_environment(environment), Ok(told.clone()));
        assert_eq!(read("dds://").in_environment(|_| None), Ok(read("dds://")));
    }

    #[test]
    fn a_domain_that_is_none_is_an_error_wherever_it_is_said() {
        for text in [
            "dds://?domain=233",
            "dds://?domain=x",
            "dds://?domain",
            "dds://a b",
            "dds://?mode=client",
        ] {
            let error = text.parse::<DdsAddress>().expect_err(text);
            assert!(error.to_string().contains("domain=N"), "{error}");
        }
        let error = read("dds://")
            .in_environment(|name| (name == "ROS_DOMAIN_ID").then(|| "robot".to_owned()));
        let error = error.expect_err("not a number").to_string();
        assert!(error.contains("ROS_DOMAIN_ID=robot"), "{error}");
    }

    #[test]
    fn interfaces_are_names_and_numbers() {
        for (text, interface) in [
            ("dds://192.168.1.20", "192.168.1.20"),
            ("dds://[fe80::1]/?domain=1", "fe80::1"),
            ("dds://?interface=eth0&domain=1", "eth0"),
        ] {
            assert_eq!(read(text).interface.as_deref(), Some(interface));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(dds://)?[a-z0-9.:?=&/\\[\\]]{0,40}") {
            let _ = text.parse::<DdsAddress>();
        }

        #[test]
        fn an_address_reads_back(domain in proptest::option::of(0u16..=232), interface in proptest::option::of("[a-z]{1,8}[0-9]?")) {
            let address = DdsAddress { domain, interface };
            prop_assert_eq!(address.to_string().parse::<DdsAddress>(), Ok(address));
        }
    }
}
