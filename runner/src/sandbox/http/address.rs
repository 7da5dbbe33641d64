//! Which addresses a handler may reach: public ones, and what the operator lists.
//!
//! An address that carries another one (IPv4 in IPv6, in one of the ways there are) counts as the one inside, so that
//! no notation of a private address looks public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Special ranges of IPv4, and what they are for.
const V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a provider's private network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, where clouds serve metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved for protocols, where clouds serve metadata"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a relay to IPv6"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks of networks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Special ranges of IPv6. The first that matches counts; what is outside 2000::/3 and not here is reserved.
const V6: &[(Ipv6Addr, u32, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "this machine"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "a private translation to IPv4"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private network"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private network"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// Why a handler may not reach this address; `None` when it may.
pub(super) fn refused(address: IpAddr, private: &[IpNet]) -> Option<&'static str> {
    let what = special(address)?;
    let listed = |address: &IpAddr| private.iter().any(|net| net.contains(address));
    let inner = inner(address).map(|(inner, _)| IpAddr::V4(inner));
    if listed(&address) || inner.as_ref().is_some_and(listed) { None } else { Some(what) }
}

/// The same address as IPv4 where it is one in IPv6's notation (`::ffff:10.0.0.1`).
pub(super) fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// What a special address is for; `None` for a public one.
fn special(address: IpAddr) -> Option<&'static str> {
    let v6 = match address {
        IpAddr::V4(v4) => return special_v4(v4),
        IpAddr::V6(v6) => v6,
    };
    // `::` and `::1` would count as carriers.
    if let Some((.., what)) = V6.iter().find(|(net, bits, _)| within(v6.to_bits(), net.to_bits(), *bits, 128))
    {
        return Some(what);
    }
    if let Some((inner, carried)) = inner(address) {
        return special_v4(inner).or(match carried {
            Carried::Mapped | Carried::Translated => None,
            Carried::Obsolete => Some("an obsolete notation of IPv4"),
        });
    }
    let is_global = v6.segments()[0] >> 13 == 1;
    (!is_global).then_some("reserved")
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let found = V4
        .iter()
        .find(|(net, bits, _)| within(u128::from(address.to_bits()), u128::from(net.to_bits()), *bits, 32));
    found.map(|(.., what)| *what)
}

/// Whether the first `bits` of two addresses of `width` bits are the same.
fn within(address: u128, net: u128, bits: u32, width: u32) -> bool {
    let rest = width - bits;
    address.checked_shr(rest) == net.checked_shr(rest)
}

/// How an IPv6 address carries an IPv4 address.
#[derive(Clone, Copy)]
enum Carried {
    /// It is that address.
    Mapped,
    /// A gateway translates, which a network without IPv4 needs to reach public servers.
    Translated,
    /// Nobody should use it.
    Obsolete,
}

/// The IPv4 address in an IPv6 address.
fn inner(address: IpAddr) -> Option<(Ipv4Addr, Carried)> {
    let IpAddr::V6(v6) = address else { return None };
    let segments = v6.segments();
    let last = Ipv4Addr::from_bits(v6.to_bits() as u32);
    match segments {
        [0, 0, 0, 0, 0, 0xffff, ..] => Some((last, Carried::Mapped)),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some((last, Carried::Translated)),
        [0, 0, 0, 0, 0xffff, 0, ..] | [0, 0, 0, 0, 0, 0, ..] => Some((last, Carried::Obsolete)),
        [0x2002, high, low, ..] => {
            let bits = u32::from(high) << 16 | u32::from(low);
            Some((Ipv4Addr::from_bits(bits), Carried::Translated))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(address: &str) -> Option<&'static str> {
        refused(address.parse().unwrap(), &[])
    }

    /// One named case an address that must not be reached.
    macro_rules! refused {
        ($($name:ident: $address:literal => $what:literal,)+) => {
            $(#[test]
            fn $name() {
                assert_eq!(class($address), Some($what), $address);
            })+
        };
    }

    refused! {
        unspecified: "0.0.0.0" => "this machine",
        this_network: "0.1.2.3" => "this machine",
        private_10: "10.0.0.1" => "a private network",
        private_10_end: "10.255.255.255" => "a private network",
        shared_by_a_provider: "100.64.0.1" => "a provider's private network",
        alibaba_metadata: "100.100.100.200" => "a provider's private network",
        loopback: "127.0.0.1" => "loopback",
        loopback_end: "127.255.255.254" => "loopback",
        link_local: "169.254.1.1" => "link-local, where clouds serve metadata",
        metadata: "169.254.169.254" => "link-local, where clouds serve metadata",
        private_172: "172.16.0.1" => "a private network",
        private_172_end: "172.31.255.255" => "a private network",
        azure_metadata: "192.0.0.192" => "reserved for protocols, where clouds serve metadata",
        documentation: "192.0.2.1" => "for documentation",
        relay: "192.88.99.1" => "a relay to IPv6",
        private_192: "192.168.1.1" => "a private network",
        benchmarks: "198.19.255.255" => "for benchmarks of networks",
        multicast: "224.0.0.1" => "multicast",
        multicast_end: "239.255.255.255" => "multicast",
        reserved: "240.0.0.1" => "reserved",
        broadcast: "255.255.255.255" => "reserved",
        v6_unspecified: "::" => "this machine",
        v6_loopback: "::1" => "loopback",
        v6_unique_local: "fc00::1" => "a private network",
        v6_aws_metadata: "fd00:ec2::254" => "a private network",
        v6_link_local: "fe80::1" => "link-local",
        v6_site_local: "fec0::1" => "a private network",
        v6_multicast: "ff02::1" => "multicast",
        v6_documentation: "2001:db8::1" => "for documentation",
        v6_documentation_new: "3fff::1" => "for documentation",
        v6_teredo: "2001:0:4136:e378:8000:63bf:3fff:fdd2" => "reserved for protocols",
        v6_discard: "100::1" => "reserved",
        v6_segment_routing: "5f00::1" => "reserved",
        mapped_loopback: "::ffff:127.0.0.1" => "loopback",
        mapped_private: "::ffff:10.0.0.1" => "a private network",
        mapped_metadata_in_hex: "::ffff:a9fe:a9fe" => "link-local, where clouds serve metadata",
        mapped_unspecified: "::ffff:0.0.0.0" => "this machine",
        compatible_loopback: "::127.0.0.1" => "loopback",
        compatible_private: "::10.0.0.1" => "a private network",
        compatible_public: "::8.8.8.8" => "an obsolete notation of IPv4",
        translated_loopback: "::ffff:0:127.0.0.1" => "loopback",
        translated_public: "::ffff:0:8.8.8.8" => "an obsolete notation of IPv4",
        nat64_private: "64:ff9b::10.0.0.1" => "a private network",
        nat64_metadata: "64:ff9b::169.254.169.254" => "link-local, where clouds serve metadata",
        nat64_loopback: "64:ff9b::7f00:1" => "loopback",
        nat64_local: "64:ff9b:1::8.8.8.8" => "a private translation to IPv4",
        six_to_four_private: "2002:a00:1::1" => "a private network",
        six_to_four_loopback: "2002:7f00:1::" => "loopback",
    }

    #[test]
    fn public_addresses_are_reached() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert_eq!(class(address), None, "{address}");
        }
    }

    #[test]
    fn what_the_operator_lists_is_reached_and_its_neighbours_are_not() {
        let nets: Vec<IpNet> = ["10.1.2.0/24", "::1/128", "fd00:1::/32"].map(|n| n.parse().unwrap()).to_vec();
        let allowed = |address: &str| refused(address.parse().unwrap(), &nets).is_none();
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "::1", "fd00:1::5"] {
            assert!(allowed(address), "{address}");
        }
        for address in ["10.1.3.3", "::ffff:10.1.3.3", "127.0.0.1", "fd00:2::5", "169.254.169.254"] {
            assert!(!allowed(address), "{address}");
        }
    }
}
