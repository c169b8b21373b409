"""The SQL functions that a condition may use, by Spark's names, and the reasons why others are not allowed.

A function is allowed where all of this holds for every value that a record can carry:

1. its result depends on its arguments alone: no clock, randomness, session, file, network, or code called by its name;
2. it fails with an exception of that one row, never with an `Error` of the JVM;
3. its time grows with the size of its arguments, not faster;
4. its result is at most a fixed number of times larger than its arguments (`Rule.growth`).

Some meet this only with restrictions on their arguments, which are constants of the file then (`Rule`).

Knows names and rules. Must not know Spark: a test holds these tables against the functions that Spark really has, and
feeds each allowed one with hostile values.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

GROWTH_MAX: Final = 64
"""Limit for the size of the values that a condition creates, relative to the record's size."""

COUNT_MAX: Final = 1_000
"""Limit for lengths, scales and numbers of digits that are written in the file."""


class Rule(NamedTuple):
    """Conditions for using a function."""

    growth: float = 1.0
    """The size of the result, if all arguments together have size one."""
    constants: tuple[int, ...] = ()
    """Positions of arguments that must be constants."""
    one_column: bool = False
    """All arguments but one must be constants: formats, paths and time zones are small programs, and if the text to
    search for comes from the record too, the time is the product of both lengths."""
    counts: bool = False
    """Integer arguments must be constants and at most COUNT_MAX."""
    arguments_max: int = 100
    lambda_argument: bool = False
    """It takes a lambda, which may use only its own parameters and constants: otherwise every element of an array could
    cost as much as the whole record."""


_PLAIN: Final = Rule()
_CONSTANTS: Final = Rule(one_column=True)
_COUNTED: Final = Rule(counts=True)


def _rules(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


ALLOWED: Final[Mapping[str, Rule]] = {
    **_rules(_PLAIN, "! != <> < <= <=> = == > >= and or not in between equal_null greatest least"),
    **_rules(_PLAIN, "case when if ifnull nvl nvl2 nullif nullifzero zeroifnull coalesce isnull isnotnull isnan nanvl"),
    **_rules(_PLAIN, "% * + - / div mod pmod negative positive try_add try_divide try_mod try_multiply try_subtract"),
    **_rules(_PLAIN, "& | ^ ~ << >> >>> bit_count bit_get getbit shiftleft shiftright shiftrightunsigned"),
    **_rules(_PLAIN, "abs acos acosh asin asinh atan atan2 atanh bin cbrt conv cos cosh cot csc degrees e exp expm1"),
    **_rules(_PLAIN, "factorial hypot ln log log10 log1p log2 pi pow power radians rint sec sign signum sin sinh sqrt"),
    **_rules(_PLAIN, "tan tanh width_bucket"),
    **_rules(_COUNTED, "bround ceil ceiling floor round"),
    # --- types
    **_rules(_PLAIN, "bigint binary boolean cast date decimal double float int smallint string timestamp tinyint"),
    **_rules(_PLAIN, "typeof"),
    # --- texts and bytes
    **_rules(_PLAIN, "ascii bit_length char char_length character_length chr left len length octet_length right"),
    **_rules(_PLAIN, "substr substring elt concat || crc32 hash md5 sha sha1 sha2 xxhash64 find_in_set"),
    **_rules(_PLAIN, "is_valid_utf8 try_validate_utf8 validate_utf8 luhn_check reverse soundex startswith endswith"),
    **_rules(_PLAIN, "try_url_decode url_decode unbase64 unhex"),
    **_rules(Rule(growth=3), "initcap lcase lower ucase upper make_valid_utf8 url_encode"),
    **_rules(Rule(growth=2), "base64 hex"),
    **_rules(_CONSTANTS, "btrim contains instr locate ltrim position rtrim split_part substring_index trim"),
    **_rules(_CONSTANTS, "to_binary to_number try_to_binary try_to_number to_char to_varchar"),
    **_rules(Rule(one_column=True, growth=4), "decode encode translate"),
    **_rules(Rule(one_column=True, counts=True), "format_number lpad rpad overlay"),
    # The growth of these depends on their constants as well; see `review`.
    "replace": _CONSTANTS,
    "concat_ws": Rule(constants=(0,)),
    # The third argument of parse_url becomes a regular expression.
    **_rules(Rule(one_column=True, arguments_max=2), "parse_url try_parse_url"),
    # --- regular expressions, which `regex` evaluates with RE2/J
    **_rules(_CONSTANTS, "like ilike rlike regexp regexp_like regexp_extract regexp_replace regexp_substr split"),
    # --- times
    **_rules(_PLAIN, "add_months date_add date_diff date_from_unix_date date_sub dateadd datediff day dayname"),
    **_rules(_PLAIN, "dayofmonth dayofweek dayofyear hour last_day make_date minute month monthname months_between"),
    **_rules(_PLAIN, "quarter second timestamp_micros timestamp_millis timestamp_seconds unix_date unix_micros"),
    **_rules(_PLAIN, "unix_millis unix_seconds weekday weekofyear year"),
    **_rules(_CONSTANTS, "convert_timezone date_format date_part date_trunc datepart extract from_unixtime"),
    **_rules(_CONSTANTS, "from_utc_timestamp next_day to_date to_timestamp to_timestamp_ltz to_timestamp_ntz"),
    **_rules(_CONSTANTS, "to_unix_timestamp to_utc_timestamp trunc try_to_date try_to_timestamp unix_timestamp"),
    # --- nested values
    **_rules(_PLAIN, "array array_compact array_contains array_max array_min array_position array_size cardinality"),
    **_rules(_PLAIN, "element_at get map map_contains_key map_entries map_from_entries map_keys map_values"),
    **_rules(_PLAIN, "named_struct size slice struct try_element_at"),
    **_rules(_CONSTANTS, "array_join"),
    **_rules(Rule(lambda_argument=True), "exists filter forall"),
    # --- JSON
    **_rules(_PLAIN, "is_valid_variant is_variant_null json_array_length json_object_keys parse_json"),
    **_rules(_PLAIN, "try_parse_json"),
    **_rules(Rule(growth=6), "to_json"),
    **_rules(_CONSTANTS, "from_json get_json_object try_variant_get variant_get"),
}
"""Rules of the allowed functions, by name."""

_RANDOM: Final = "random values differ when a batch is replayed; use a hash of event_id instead"
_CLOCK: Final = "the current time differs when a batch is replayed; compare with observed_time instead"
_ROWS: Final = "aggregates, window functions and generators cannot be used on single records"
_SESSION: Final = "its value differs when a batch is replayed; use columns of the event instead"
_SIZE: Final = "its result can have any size, independent of the record's"
_PRODUCT: Final = "its time is the product of the lengths of its arguments"
_LAMBDA: Final = "its function may be called on its own results; use exists, filter or forall"
_SKETCH: Final = "sketches and bitmaps belong to aggregates; there are none over single records"


def _refused(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


REFUSED: Final[Mapping[str, str]] = {
    **_refused(_RANDOM, "rand randn random randstr shuffle uniform uuid"),
    **_refused(
        _CLOCK,
        "curdate current_date current_time current_timestamp localtimestamp now session_window window window_time",
    ),
    **_refused(
        _SESSION,
        "monotonically_increasing_id "
        "current_catalog current_database current_path current_schema current_timezone current_user session_user user "
        "version input_file_block_length input_file_block_start input_file_name spark_partition_id python_worker_logs "
        "collations sql_keywords",
    ),
    **_refused("it calls code of the JVM by its name", "java_method reflect try_reflect"),
    **_refused("it only raises an error; write the condition itself", "assert_true raise_error"),
    **_refused(_SIZE, "array_repeat range repeat sequence space"),
    **_refused(f"{_SIZE}; use concat", "format_string printf"),
    **_refused(_PRODUCT, "levenshtein"),
    **_refused("merging the types of all elements takes time quadratic in their number", "schema_of_variant"),
    **_refused("it uses Java's regular expressions; use regexp_extract", "regexp_extract_all regexp_instr"),
    **_refused("it uses Java's regular expressions; use rlike", "regexp_count"),
    **_refused("it uses Java's regular expressions; parse the line as logfmt or key_value", "str_to_map"),
    **_refused(
        _LAMBDA, "aggregate array_sort map_filter map_zip_with reduce transform transform_keys transform_values"
    ),
    **_refused(_LAMBDA, "zip_with"),
    **_refused(_PRODUCT, "array_except array_intersect array_union arrays_overlap array_distinct"),
    **_refused(
        "arrays and maps of a record can only be searched here, with array_contains, element_at, exists or filter",
        "array_append array_insert array_prepend array_remove arrays_zip flatten map_concat map_from_arrays sort_array",
    ),
    **_refused(
        "XML can contain entities that expand and file names; use a pattern",
        "from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number "
        "xpath_short xpath_string",
    ),
    **_refused("parse CSV in a parse rule, with format csv", "from_csv schema_of_csv to_csv"),
    **_refused("Avro and Protobuf are not read here", "from_avro schema_of_avro to_avro from_protobuf to_protobuf"),
    **_refused("use a mask for secrets", "aes_decrypt aes_encrypt mask try_aes_decrypt"),
    **_refused("texts are compared byte by byte here; use lower or upper", "collate collation"),
    **_refused("its schema must be a constant; use from_json or variant_get", "schema_of_json to_variant_object"),
    **_refused("it splits sentences by the rules of a language; use rlike", "sentences"),
    **_refused("it only quotes a text for SQL", "quote"),
    **_refused(
        "intervals and times of a day are not columns of an event; write INTERVAL 1 HOUR, or use hour and minute",
        "make_dt_interval make_interval make_time make_ym_interval time time_bucket time_diff time_from_micros "
        "time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc to_time "
        "try_make_interval try_to_time",
    ),
    **_refused(
        "write the timestamp as text and cast it",
        "make_timestamp make_timestamp_ltz make_timestamp_ntz try_make_timestamp try_make_timestamp_ltz "
        "try_make_timestamp_ntz",
    ),
    **_refused(
        "geometries and vectors are not fields of an event",
        "st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid vector_avg vector_cosine_similarity "
        "vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum",
    ),
    **_refused(
        _ROWS,
        "any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate "
        "approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg "
        "bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every "
        "first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint "
        "kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float "
        "kurtosis last last_value listagg max max_by mean measure median min min_by mode percentile percentile_approx "
        "percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx "
        "regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum "
        "theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double "
        "tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double "
        "tuple_union_agg_integer var_pop var_samp variance explode explode_outer inline inline_outer json_tuple "
        "posexplode posexplode_outer stack variant_explode variant_explode_outer cume_dist dense_rank lag lead "
        "nth_value ntile percent_rank rank row_number",
    ),
    **_refused(
        _SKETCH,
        "approx_top_k_estimate bitmap_bit_position bitmap_bucket_number bitmap_count hll_sketch_estimate hll_union "
        "kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint "
        "kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint "
        "kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double "
        "kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float "
        "theta_difference theta_intersection theta_sketch_estimate theta_union tuple_difference_double "
        "tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer "
        "tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double "
        "tuple_intersection_theta_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer "
        "tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double "
        "tuple_sketch_theta_integer tuple_union_double tuple_union_integer tuple_union_theta_double "
        "tuple_union_theta_integer",
    ),
}
"""Why a function is not allowed, by name: the end of a sentence."""
