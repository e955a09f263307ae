"""Spark's SQL for sqlglot.

Spark reserves no word: ``from``, ``end`` and ``values`` can name columns. sqlglot's Spark dialect reserves about sixty
words. The dialects here turn such a word into an identifier where only a name can stand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import DialectType
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

#: Tokens that follow a complete operand and cannot begin one.
_AFTER_OPERAND = frozenset(
    (
        *(TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.L_BRACKET, TokenType.DOT),
        *(TokenType.EQ, TokenType.NEQ, TokenType.NULLSAFE_EQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE),
        *(TokenType.AND, TokenType.OR, TokenType.IS, TokenType.BETWEEN, TokenType.ALIAS, TokenType.THEN),
        *(TokenType.DCOLON, TokenType.SEMICOLON),
    )
)
#: Tokens that follow a complete operand, and also SELECT, DISTINCT or CASE.
_AFTER_OPERAND_OR_PREFIX = frozenset(
    (
        *(TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DIV),
        *(TokenType.DPIPE, TokenType.AMP, TokenType.PIPE, TokenType.CARET),
        *(TokenType.IN, TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE),
        *(TokenType.WHEN, TokenType.ELSE, TokenType.END, TokenType.FROM),
    )
)
_PREFIXES = frozenset(
    (
        *(TokenType.SELECT, TokenType.DISTINCT, TokenType.ALL, TokenType.ANY, TokenType.SOME, TokenType.CASE),
        *(TokenType.EXISTS, TokenType.INTERVAL, TokenType.WITH),
    )
)
#: Words that are keywords after the other word, whatever follows.
_KEYWORD_PAIRS = frozenset(
    (
        *((TokenType.CASE, TokenType.WHEN), (TokenType.INSERT, TokenType.INTO)),
        *((TokenType.DISTINCT, TokenType.FROM), (TokenType.FROM, TokenType.VALUES)),
    )
)
_STATEMENT_STARTS = frozenset((TokenType.SELECT, TokenType.WITH, TokenType.INSERT, TokenType.FROM))
_LITERALS = frozenset(
    (
        *(TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING),
        *(TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
    )
)
_OPERAND_ENDS = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END, TokenType.IDENTIFIER, *_LITERALS))
_BEFORE_STAR = frozenset((TokenType.SELECT, TokenType.DISTINCT, TokenType.COMMA, TokenType.DOT, TokenType.L_PAREN))

#: Functions with a syntax of their own, such as ``extract(year FROM t)``.
_SPECIAL_FUNCTIONS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION")


class SparkSql(Spark):
    """Parses SQL that is inspected and passed to Spark as the user wrote it: no function is interpreted."""

    class Tokenizer(Spark.Tokenizer):
        # A hint changes no result, so it is a comment here.
        KEYWORDS: ClassVar = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "/*+"}
        COMMANDS: ClassVar = set[TokenType]()
        # In Spark 4, 'it''s' is one literal.
        STRING_ESCAPES: ClassVar = ["'", '"', "\\"]

    class Parser(SparkParser):
        # In Spark, array[0] is an element of the column "array".
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar = {name: SparkParser.FUNCTION_PARSERS[name] for name in _SPECIAL_FUNCTIONS}

    def tokenize(self, sql: str, dialect: DialectType = None) -> list[Token]:
        """Return the tokens of a text. Words that stand where only a name can stand are names."""
        tokens = super().tokenize(sql, dialect)
        for index, token in enumerate(tokens):
            kind = _name_type(tokens, index)
            if kind is not None:
                tokens[index] = Token(kind, token.text, token.line, token.col, token.start, token.end, token.comments)
        return tokens


def _parse_table_function(name: str, parser: Any) -> exp.Anonymous:
    """Parse the arguments of a table function. A table is written ``TABLE name``."""
    arguments = parser._parse_csv(lambda: _parse_argument(parser))
    return exp.Anonymous(this=name, expressions=arguments)


def _parse_argument(parser: Any) -> Any:
    return parser._parse_table_parts() if parser._match(TokenType.TABLE) else parser._parse_lambda()


#: Flink's table functions of windows. Streams refuse them, and materialized views take TUMBLE and HOP.
TABLE_FUNCTIONS: dict[str, Callable[[Any], exp.Anonymous]] = {
    name: partial(_parse_table_function, name) for name in ("TUMBLE", "HOP", "SESSION", "CUMULATE")
}


class StatementSql(SparkSql):
    """Parses statements, in which sqlglot tells aggregates and date functions from others."""

    class Parser(SparkSql.Parser):
        FUNCTIONS: ClassVar = {
            # sqlglot prints parse_json(x) as x.
            **{name: build for name, build in SparkParser.FUNCTIONS.items() if name != "PARSE_JSON"},
            "PERCENTILE": lambda args: _parse_percentile(args),
        }
        FUNCTION_PARSERS: ClassVar = {
            **{name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name != "PERCENTILE"},
            **TABLE_FUNCTIONS,
        }


def _parse_percentile(args: list[exp.Expr]) -> exp.Expr:
    """Return the call with all of its arguments. sqlglot drops a third one."""
    if len(args) > 2:
        return exp.AnonymousAggFunc(this="percentile", expressions=args)
    return exp.Quantile.from_arg_list(args)


def _name_type(tokens: list[Token], index: int) -> TokenType | None:
    """Return the type of name that a word is, which sqlglot may take for a keyword; None if it may be a keyword."""
    token = tokens[index]
    kind = token.token_type
    before = tokens[index - 1].token_type if index else None
    after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
    # sqlglot parses IF, ANY and TRANSFORM by their text, even without parentheses.
    is_call = token.text.upper() in SparkParser.NO_PAREN_FUNCTION_PARSERS
    is_word = token.text[:1].isalpha() and " " not in token.text
    if not is_word or kind is TokenType.IDENTIFIER or (kind is TokenType.VAR and not is_call):
        return None
    # sqlglot takes window(...) after GROUP BY for the clause WINDOW.
    if before is TokenType.DOT or (kind is TokenType.WINDOW and after is TokenType.L_PAREN):
        return TokenType.VAR
    if kind is TokenType.NOT or kind in _LITERALS or (before, kind) in _KEYWORD_PAIRS:
        return None
    # In a NOT BETWEEN b, BETWEEN follows an operand and NOT.
    last = index - 2 if before is TokenType.NOT else index - 1
    if last >= 0 and _ends_operand(tokens, last):
        return None
    if after is TokenType.L_BRACKET:
        return TokenType.IDENTIFIER
    if kind in SparkParser.ID_VAR_TOKENS and kind not in _PREFIXES and not is_call:
        return None
    is_alias = before is TokenType.ALIAS and kind not in _STATEMENT_STARTS
    is_operand = after is None or after in _AFTER_OPERAND
    is_operand = is_operand or (after in _AFTER_OPERAND_OR_PREFIX and kind not in _PREFIXES)
    return TokenType.IDENTIFIER if is_alias or is_operand else None


def _ends_operand(tokens: list[Token], index: int) -> bool:
    kind = tokens[index].token_type
    if kind is TokenType.STAR:
        return index > 0 and tokens[index - 1].token_type in _BEFORE_STAR
    if kind in _OPERAND_ENDS:
        return True
    if kind in _PREFIXES or kind in _AFTER_OPERAND or kind in _AFTER_OPERAND_OR_PREFIX:
        return False
    return kind in SparkParser.ID_VAR_TOKENS
