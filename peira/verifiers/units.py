"""Units of measure and currencies: names, dimensions, exact factors."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit and its exact size in the base unit of its dimension."""

    name: str
    dimension: str
    factor: Fraction


def _table() -> dict[str, Unit]:
    rows = [
        # dimension, factor, names; the first name is the canonical one
        ("length", "1", "m meter meters metre metres"),
        ("length", "1000", "km kilometer kilometers kilometre kilometres"),
        ("length", "1/100", "cm centimeter centimeters centimetre centimetres"),
        ("length", "1/1000", "mm millimeter millimeters millimetre millimetres"),
        ("length", "127/5000", "inch inches in"),
        ("length", "381/1250", "foot feet ft"),
        ("length", "1143/1250", "yard yards yd"),
        ("length", "201168/125", "mile miles mi"),
        ("mass", "1", "g gram grams"),
        ("mass", "1000", "kg kilogram kilograms"),
        ("mass", "1/1000", "mg milligram milligrams"),
        ("mass", "1000000", "tonne tonnes"),
        ("mass", "45359237/100000", "pound pounds lb lbs"),
        ("mass", "45359237/1600000", "ounce ounces oz"),
        ("time", "1", "s second seconds sec secs"),
        ("time", "60", "minute minutes min mins"),
        ("time", "3600", "hour hours h hr hrs"),
        ("time", "86400", "day days"),
        ("time", "604800", "week weeks"),
        ("month", "1", "month months"),
        ("month", "12", "year years yr yrs"),
        ("volume", "1", "liter liters litre litres L"),
        ("volume", "1/1000", "ml mL milliliter milliliters millilitre millilitres"),
        ("volume_us", "1", "gallon gallons"),
        ("volume_us", "1/4", "quart quarts"),
        ("volume_us", "1/8", "pint pints"),
        ("volume_us", "1/16", "cup cups"),
        ("angle", "1", "degree degrees deg"),
        ("angle_radian", "1", "radian radians rad"),
        ("speed", "1", "mph"),
        ("speed_metric", "1", "km/h kph kmh"),
        ("speed_si", "1", "m/s"),
        ("dollar", "1", "dollar dollars USD"),
        ("dollar", "1/100", "cent cents"),
        ("euro", "1", "euro euros EUR"),
        ("pound_sterling", "1", "GBP pence_pound"),
        ("rupee", "1", "rupee rupees INR"),
        ("yuan", "1", "yuan CNY"),
        ("yen", "1", "yen JPY"),
        ("temperature_c", "1", "celsius"),
        ("temperature_f", "1", "fahrenheit"),
        ("count", "1", "unit units"),
    ]
    table = {}
    for dimension, factor, names in rows:
        first, *others = names.split()
        unit = Unit(first, dimension, Fraction(factor))
        for name in (first, *others):
            table[name] = unit
    lengths = [unit for unit in set(table.values()) if unit.dimension == "length"]
    for unit in lengths:
        for power, adjective, dimension in ((2, "square", "area"), (3, "cubic", "solid")):
            derived = Unit(f"{unit.name}^{power}", dimension, unit.factor**power)
            for name in [name for name, other in table.items() if other == unit]:
                table[f"{name}^{power}"] = derived
                table[f"{adjective} {name}"] = derived
    for word in ("unit", "units"):
        table[f"square {word}"] = Unit("unit^2", "area_units", Fraction(1))
        table[f"cubic {word}"] = Unit("unit^3", "solid_units", Fraction(1))
    return table


UNITS: Mapping[str, Unit] = _table()


def find_unit(text: str) -> Unit | None:
    """The unit of this name; case counts only where the exact name is known (`L`, `mL`).

    Example:
        >>> find_unit("square feet").name, find_unit("furlong")
        ('foot^2', None)
    """
    text = " ".join(text.replace("per hour", "/h").replace(" /h", "/h").split())
    for candidate in (text, text.removesuffix("."), text.lower(), text.lower().removesuffix(".")):
        if candidate in UNITS:
            return UNITS[candidate]
    if text.lower() in ("miles/h", "miles/hour", "mi/h"):
        return UNITS["mph"]
    return None
