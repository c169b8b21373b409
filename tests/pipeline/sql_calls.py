"""Calls of every SQL function that a file may use, over the columns of an event. It asserts nothing."""

from collections.abc import Iterator

OF_NUMBERS = """
abs acos acosh asin asinh atan atanh bin cbrt cos cosh cot csc degrees exp expm1 factorial ln log log10 log1p
log2 negative positive radians rint sec sign signum sin sinh sqrt tan tanh bit_count char chr bround ceil
ceiling floor round nullifzero zeroifnull isnan bigint boolean double float int smallint string timestamp
tinyint hex date_from_unix_date timestamp_micros timestamp_millis timestamp_seconds typeof
"""
OF_WHOLE_NUMBERS = ("bit_count", "char", "chr", "date_from_unix_date", "timestamp_micros", "timestamp_millis")
OF_TWO_NUMBERS = """
% * + - / div & ^ << >> >>> mod pmod try_add try_divide try_mod try_multiply try_subtract bit_get getbit
shiftleft shiftright shiftrightunsigned atan2 hypot pow power log nanvl
"""
OF_TEXT = """
ascii base64 binary bit_length bigint boolean char_length character_length crc32 date double float hash hex
initcap int is_valid_utf8 lcase len length lower luhn_check make_valid_utf8 md5 octet_length parse_json
reverse sha sha1 smallint soundex string timestamp tinyint trim btrim ltrim rtrim to_binary try_parse_json
try_to_binary try_url_decode try_validate_utf8 ucase unbase64 unhex upper url_decode url_encode validate_utf8
xxhash64 json_array_length json_object_keys to_date try_to_date to_timestamp to_timestamp_ltz to_timestamp_ntz
try_to_timestamp unix_timestamp to_unix_timestamp isnull isnotnull typeof
"""
OF_TIME = """
day dayname dayofmonth dayofweek dayofyear hour last_day minute month monthname quarter second weekday
weekofyear year date to_date
"""
OPERATORS = {"%", "*", "+", "-", "/", "div", "&", "|", "^", "<<", ">>", ">>>"}
CALLS = """
! NOT severity_number = 1
| (severity_number | 7)
!= body != service
<> body <> 'x'
< body < 1
<= body <= 1.5
<=> body <=> 1
= body = 1
== body == 2D
> body > 10000000000
>= body >= DATE '2026-01-01'
and body = '1' AND true
or body::int = 1 OR false
not NOT body::boolean
in body IN (1, 2)
between body BETWEEN 1 AND 2
equal_null equal_null(body, 1)
greatest greatest(body, service)
least least(body, service)
case CASE body WHEN 1 THEN 2 END
when CASE WHEN body = 1 THEN body END
if if(body = 1, 1, 2)
ifnull ifnull(body, 1)
nvl nvl(body, 1)
nvl2 nvl2(body, 1, 2)
nullif nullif(body, 1)
coalesce coalesce(body, 1)
e e() = weight
pi pi() = weight
conv conv(body, 36, 10)
width_bucket width_bucket(body, 1, 2, 3)
width_bucket width_bucket(1, 2, 3, severity_number)
~ ~severity_number
cast CAST(body AS TIMESTAMP_NTZ)
cast CAST(body AS DECIMAL(38, 2)) * 2
decimal decimal(body)
variant_get variant_get(attributes, '$.a', 'decimal(9,2)')
cast CAST(body AS VARIANT)::int
cast attributes:a::int
cast attributes:a[0].b::double
cast attributes::array<string>[0]
cast body::date
cast body::boolean
cast time::int
cast weight::smallint
left left(body, severity_number)
right right(body, severity_number)
substr substr(body, severity_number, offset)
substring substring(body FROM 3 FOR severity_number)
elt elt(severity_number, body, service)
concat concat(body, service)
|| body || service
concat_ws concat_ws(' ', body, service)
find_in_set find_in_set(body, service)
sha2 sha2(body, 256)
sha2 sha2(body, severity_number)
startswith startswith(body, service)
endswith endswith(body, service)
trim trim(BOTH 'a' FROM body)
ltrim ltrim('a', body)
rtrim trim(TRAILING 'a' FROM body)
contains contains(body, 'aac')
instr instr(body, 'aac')
locate locate('aac', body)
position position('aac' IN body)
split_part split_part(body, 'a', 7)
substring_index substring_index(body, 'a', -3)
to_binary to_binary(body, 'utf-8')
to_binary to_binary(body, 'base64')
to_number to_number(body, '999999.99')
try_to_binary try_to_binary(body, 'hex')
try_to_number try_to_number(body, '99')
to_char to_char(severity_number, '999')
to_varchar to_varchar(time, 'yyyy')
decode decode(body, 1, 'x')
decode decode(CAST(body AS BINARY), 'utf-16')
encode encode(body, 'utf-16')
encode encode(body, 'us-ascii')
translate translate(body, 'ab', 'é')
format_number format_number(weight, 100)
format_number format_number(offset, '#,#.#')
lpad lpad(body, 1000, 'x')
rpad rpad(body, 3, 'x')
overlay overlay(body PLACING 'x' FROM 3)
replace replace(body, 'a', 'bc')
parse_url parse_url(body, 'HOST')
try_parse_url try_parse_url(body, 'QUERY')
like body LIKE '%a%a%a%b'
like body LIKE ANY ('%a_', 'b%')
like body NOT LIKE ALL ('%a%b%c', '_')
ilike body ILIKE '%A_B%'
rlike body RLIKE '^(a|b)*$'
regexp body REGEXP '^(.*a){20}$'
regexp_like regexp_like(body, '(x+x+)+y')
regexp regexp(body, '(?i)(A*)*c')
rlike rlike(severity_number, '(1*)*2')
regexp_extract regexp_extract(body, '((a|b)*)c', 1)
regexp_extract regexp_extract(body, '(a*)*', 0)
regexp_replace regexp_replace(body, '(a|b)*', '$1x')
regexp_substr regexp_substr(body, '([ab]*)*c')
split split(body, '[ab]+')[severity_number]
split split(body, ' ', 3)[0]
unix_date unix_date(date(body))
unix_micros unix_micros(time)
unix_millis unix_millis(time)
unix_seconds unix_seconds(time)
add_months add_months(time, severity_number)
date_add date_add(time, severity_number)
date_diff date_diff(time, body)
date_sub date_sub(time, severity_number)
dateadd dateadd(HOUR, severity_number, time)
dateadd dateadd(time, severity_number)
datediff datediff(MICROSECOND, time, observed_time)
+ time + INTERVAL 1 YEAR
- time - observed_time
- time - INTERVAL 9 DAY
make_date make_date(severity_number, severity_number, 1)
months_between months_between(time, body)
convert_timezone convert_timezone('UTC', 'Asia/Tokyo', time::timestamp_ntz)
date_format date_format(time, 'yyyy-QQ HH')
date_format date_format(body, 'yyyy')
date_part date_part('WEEK', time)
datepart datepart('year', body)
date_trunc date_trunc('WEEK', time)
date_trunc date_trunc('MICROSECOND', body)
extract extract(DOY FROM time)
from_unixtime from_unixtime(offset)
from_unixtime from_unixtime(body, 'yyyy')
trunc trunc(time, 'YEAR')
from_utc_timestamp from_utc_timestamp(time, 'Asia/Tokyo')
to_utc_timestamp to_utc_timestamp(body, '+01:00')
next_day next_day(time, 'MO')
to_timestamp to_timestamp(body, 'yyyy-MM-dd[ HH:mm[:ss]]')
to_date to_date(body, 'dd.MM.yy')
try_to_timestamp try_to_timestamp(body, 'dd MMM yyyy')
unix_timestamp unix_timestamp(body, 'HH')
array array(body)[severity_number]
array_compact size(array_compact(array(body, NULL)))
array_contains array_contains(array(body), service)
array_max array_max(array(body, service))
array_min array_min(array(body, service))
array_join array_join(array(body), ' ')
array_position array_position(array(body), service)
array_size array_size(array(body))
cardinality cardinality(array(body))
size size(split(body, 'a'))
element_at element_at(array(body), severity_number)
get get(array(body), severity_number)
element_at map(body, 1)[service]
element_at element_at(from_json(body, 'a ARRAY<INT>').a, severity_number)
try_element_at try_element_at(array(body), severity_number)
slice slice(array(body), severity_number, offset)[0]
map map(body, service)[service]
map_contains_key map_contains_key(map('a', 1), body)
map_entries map_entries(map(1, 1))[0].key
map_keys map_keys(map('a', 1))[0]
map_values map_values(map('a', 1))[0]
map_from_entries map_from_entries(array(struct(body, 1)))['a']
map_from_entries map_from_entries(array((lower(body), 1), (lower(service), 2)))['a']
named_struct named_struct('a', body).a
struct struct(body).body
exists exists(split(body, 'a'), x -> x = 'b')
filter size(filter(split(body, 'a'), x -> CAST(x AS INT) = 1))
forall forall(split(body, ','), x -> x RLIKE '(a*)*b')
is_variant_null is_variant_null(attributes)
is_valid_variant is_valid_variant(attributes)
to_json to_json(attributes)
to_json to_json(named_struct('a', body))
from_json from_json(body, 'a STRUCT<b: ARRAY<INT>>').a.b[0]
from_json from_json(body, 'a VARIANT').a::int
from_json from_json(body, 'a MAP<STRING, DOUBLE>').a['x']
get_json_object get_json_object(body, '$.a[*].b')
variant_get variant_get(attributes, '$.a', 'int')
variant_get variant_get(parse_json(body), '$[0]', 'timestamp')
try_variant_get try_variant_get(attributes, '$.a.b', 'date')
"""


def calls() -> Iterator[tuple[str, str]]:
    """Name and SQL of at least one call of every allowed function."""
    for name in OF_NUMBERS.split():
        yield name, f"{name}(severity_number)"
        if name not in OF_WHOLE_NUMBERS:
            yield name, f"{name}(weight)"
    for name in OF_TWO_NUMBERS.split():
        for left, right in (("severity_number", "offset"), ("offset", "severity_number")):
            yield name, f"{left} {name} {right}" if name in OPERATORS else f"{name}({left}, {right})"
    for name in OF_TEXT.split():
        yield name, f"{name}(body)"
    for name in OF_TIME.split():
        yield name, f"{name}(time)"
        yield name, f"{name}(body)"
    for line in CALLS.strip().splitlines():
        name, _, sql = line.partition(" ")
        yield name, sql
