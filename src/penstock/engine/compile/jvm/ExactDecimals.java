import java.math.BigDecimal;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAlias;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.*;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.$colon$colon;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Exact arithmetic with decimals, and decimals as text without trailing zeros.
 *
 * Spark reserves the digits before the point that a result could need at most, at the expense of the decimals: it keeps
 * 6 decimals of the product of two decimal(38,18). Here the result keeps up to 18 decimals, like the operands, and a
 * result that is too large for that is an error. Spark's compiler for generated code compiles this class on first use.
 * The rewritten plans contain only expressions that are part of Spark.
 */
public final class ExactDecimals {
    private static final int MAX_DIGITS = 38;
    private static final int MAX_DECIMALS = 18;
    private static final String EXCLUDED_RULES = "spark.sql.optimizer.excludedRules";
    private static final String EARLY_EVALUATION = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation";
    private static final String PREFIX = "penstock_exact_";
    private static final String TRY_PREFIX = "penstock_try_";
    private static final String TRY_CASTS = "penstock_try_casts";
    private static final String[] OPERATORS = {"+", "-", "*", "/"};
    private static final String[] NAMES = {"add", "subtract", "multiply", "divide"};
    private static final String[] METHODS = {"$plus", "$minus", "$times", "$div"};

    /** Parses an SQL expression. */
    public Column column(SparkSession session, String text) throws Exception {
        return column(session, session.sessionState().sqlParser().parseExpression(text), false);
    }

    /** Parses an SQL expression that is null where it cannot be computed. */
    public Column tryColumn(SparkSession session, String text) throws Exception {
        Column column = column(session, session.sessionState().sqlParser().parseExpression(text), true);
        return withNullForFailedCasts(session, column);
    }

    /** A column whose casts are null where they fail, also those that Spark adds when it analyzes the column. */
    public Column withNullForFailedCasts(SparkSession session, Column column) {
        register(session);
        Expression expression = ColumnNodeToExpressionConverter$.MODULE$.apply(column.node());
        // Spark finds window functions before it builds other functions.
        if (hasWindow(expression)) return column;
        return ExpressionUtils.column(new UnresolvedFunction(
            one(TRY_CASTS), one(expression), false, Option.empty(), Option.empty(), none(), false));
    }

    private static boolean hasWindow(Expression expression) {
        if (expression instanceof UnresolvedWindowExpression || expression instanceof WindowExpression) return true;
        for (int i = 0; i < expression.children().size(); i++) {
            if (hasWindow((Expression) expression.children().apply(i))) return true;
        }
        return false;
    }

    /** Rewrites a column. */
    public Column column(SparkSession session, Column column) {
        return column(session, ColumnNodeToExpressionConverter$.MODULE$.apply(column.node()), false);
    }

    private static Column column(SparkSession session, Expression expression, boolean isTry) {
        register(session);
        return ExpressionUtils.column(new ExpressionRewriter(isTry).rewrite(expression));
    }

    /** Runs a query. */
    public Dataset query(SparkSession session, String query) throws Exception {
        register(session);
        LogicalPlan plan = session.sessionState().sqlParser().parsePlan(query);
        return Dataset.ofRows(session, new PlanRewriter().rewrite(plan));
    }

    /** Registers the functions that replace operators, and the rule for decimals as text, once in a session. */
    private static void register(SparkSession session) {
        if (!session.sessionState().experimentalMethods().extraOptimizations().isEmpty()) return;
        for (int i = 0; i < NAMES.length; i++) {
            session.sessionState().functionRegistry().createOrReplaceTempFunction(
                PREFIX + NAMES[i], new Operator(i, false), "scala_udf");
            session.sessionState().functionRegistry().createOrReplaceTempFunction(
                TRY_PREFIX + NAMES[i], new Operator(i, true), "scala_udf");
        }
        session.sessionState().functionRegistry().createOrReplaceTempFunction(TRY_CASTS, new TryCasts(), "scala_udf");
        session.sessionState().experimentalMethods().extraOptimizations_$eq(one(new DecimalTextRule()));
        // This rule evaluates small tables before ours is applied.
        String excluded = session.sessionState().conf().getConfString(EXCLUDED_RULES, "");
        session.sessionState().conf().setConfString(
            EXCLUDED_RULES, excluded.isEmpty() ? EARLY_EVALUATION : EARLY_EVALUATION + "," + excluded);
    }

    /** Replaces every operator in a plan that is not analyzed yet with one of our functions. */
    private static final class PlanRewriter extends AbstractFunction1 {
        public Object apply(Object plan) {
            return rewrite((LogicalPlan) plan);
        }

        LogicalPlan rewrite(LogicalPlan plan) {
            LogicalPlan rewritten = (LogicalPlan) ((TreeNode) plan).mapChildren(this);
            if (rewritten instanceof UnresolvedWith) {
                UnresolvedWith with = (UnresolvedWith) rewritten;
                Seq relations = (Seq) ((Seq) with.cteRelations()).map(new CteRewriter());
                return new UnresolvedWith(with.child(), relations, with.allowRecursion());
            }
            return (LogicalPlan) rewritten.mapExpressions(new ExpressionRewriter(false));
        }
    }

    /** Rewrites the named relations of a WITH clause. */
    private static final class CteRewriter extends AbstractFunction1 {
        public Object apply(Object relation) {
            Tuple3 named = (Tuple3) relation;
            return new Tuple3(named._1(), new PlanRewriter().rewrite((LogicalPlan) named._2()), named._3());
        }
    }

    /** Replaces every operator in an expression with one of our functions. */
    private static final class ExpressionRewriter extends AbstractFunction1 {
        /** Whether what cannot be computed is null: quotients by zero, casts that do not fit, numbers too large. */
        private final boolean isTry;

        ExpressionRewriter(boolean isTry) {
            this.isTry = isTry;
        }

        public Object apply(Object expression) {
            return rewrite((Expression) expression);
        }

        Expression rewrite(Expression expression) {
            Expression rewritten = (Expression) ((TreeNode) expression).mapChildren(this);
            if (rewritten instanceof SubqueryExpression) {
                SubqueryExpression subquery = (SubqueryExpression) rewritten;
                return (Expression) subquery.withNewPlan(new PlanRewriter().rewrite((LogicalPlan) subquery.plan()));
            }
            if (rewritten instanceof UnresolvedAlias && rewritten != expression) {
                DefaultName name = new DefaultName(pretty(((UnresolvedAlias) expression).child()));
                return new UnresolvedAlias(((UnresolvedAlias) rewritten).child(), Option.apply(name));
            }
            int index = operatorIndex(rewritten);
            if (index < 0) return isTry ? withoutErrors(rewritten) : rewritten;
            return new UnresolvedFunction(
                one((isTry ? TRY_PREFIX : PREFIX) + NAMES[index]), rewritten.children(), false, Option.empty(),
                Option.empty(), none(), false);
        }

        private Expression withoutErrors(Expression expression) {
            Expression result = expression;
            if (expression instanceof Cast) {
                Cast cast = (Cast) expression;
                result = new Cast(cast.child(), cast.dataType(), cast.timeZoneId(), EvalMode.TRY());
            } else if (expression instanceof Remainder) {
                result = new Remainder(child(expression, 0), child(expression, 1), tryContext());
            } else if (expression instanceof IntegralDivide) {
                Expression divisor = child(expression, 1);
                Expression zero = new EqualTo(divisor, Literal$.MODULE$.apply(Integer.valueOf(0)));
                Expression missing = Literal$.MODULE$.create(null, NullType$.MODULE$);
                result = new IntegralDivide(child(expression, 0), new If(zero, missing, divisor));
            } else if (expression instanceof UnresolvedFunction) {
                result = tryFunction((UnresolvedFunction) expression);
            }
            if (result != expression) ((TreeNode) result).copyTagsFrom((TreeNode) expression);
            return result;
        }

        /** The variant of a function that returns null instead of an error, such as try_element_at, if there is one. */
        private Expression tryFunction(UnresolvedFunction function) {
            if (function.nameParts().size() != 1) return function;
            String name = "try_" + function.nameParts().head().toString().toLowerCase();
            if (!FunctionRegistry$.MODULE$.expressions().contains(name)) return function;
            return new UnresolvedFunction(
                one(name), function.arguments(), function.isDistinct(), function.filter(), function.ignoreNulls(),
                function.orderingWithinGroup(), function.isInternal());
        }

        private static Expression child(Expression expression, int index) {
            return (Expression) expression.children().apply(index);
        }

        private static int operatorIndex(Expression expression) {
            if (expression instanceof Add) return 0;
            if (expression instanceof Subtract) return 1;
            if (expression instanceof Multiply) return 2;
            if (expression instanceof Divide) return 3;
            if (expression instanceof UnresolvedFunction && expression.children().size() == 2) {
                UnresolvedFunction function = (UnresolvedFunction) expression;
                for (int i = 0; i < OPERATORS.length; i++) {
                    if (function.nameParts().size() == 1 && function.nameParts().head().equals(OPERATORS[i])) return i;
                }
            }
            return -1;
        }
    }

    /** Names a column without an alias as Spark would name the original expression. */
    private static final class DefaultName extends AbstractFunction1 {
        private final String original;

        DefaultName(String original) {
            this.original = original;
        }

        public Object apply(Object expression) {
            return isRewritten((Expression) expression) ? original : pretty((Expression) expression);
        }

        private static boolean isRewritten(Expression expression) {
            if (expression instanceof Invoke) return true;
            for (int i = 0; i < expression.children().size(); i++) {
                if (isRewritten((Expression) expression.children().apply(i))) return true;
            }
            return false;
        }
    }

    /** Builds the expression of an operator when the types of its operands are known. */
    private static final class Operator extends AbstractFunction1 {
        private final int index;
        private final boolean isTry;

        Operator(int index, boolean isTry) {
            this.index = index;
            this.isTry = isTry;
        }

        public Object apply(Object operands) {
            Expression left = (Expression) ((Seq) operands).apply(0);
            Expression right = (Expression) ((Seq) operands).apply(1);
            DecimalType a = decimalType(left);
            DecimalType b = decimalType(right);
            boolean hasDecimal = left.dataType() instanceof DecimalType || right.dataType() instanceof DecimalType;
            DecimalType type = hasDecimal && a != null && b != null ? widerType(a, b) : null;
            return type == null ? sparkExpression(left, right) : exactExpression(cast(left, a), cast(right, b), type);
        }

        private Expression sparkExpression(Expression left, Expression right) {
            if (isTry) {
                switch (index) {
                    case 0: return new Add(left, right, tryContext());
                    case 1: return new Subtract(left, right, tryContext());
                    case 2: return new Multiply(left, right, tryContext());
                    default: return new Divide(left, right, tryContext());
                }
            }
            switch (index) {
                case 0: return new Add(left, right);
                case 1: return new Subtract(left, right);
                case 2: return new Multiply(left, right);
                default: return new Divide(left, right);
            }
        }

        private Expression exactExpression(Expression left, Expression right, DecimalType type) {
            Expression result = invoke(left, METHODS[index], left.dataType(), one(right));
            Expression checked = new CheckOverflow(result, type, isTry || !SQLConf.get().ansiEnabled());
            if (index < 3) return checked;
            Expression zero = literal(Decimal.apply(0L), right.dataType());
            if (isTry) return new If(new EqualTo(right, zero), Literal$.MODULE$.create(null, type), checked);
            // Spark's own division by zero raises Spark's error.
            Expression failed = cast(new Divide(literal(Decimal.apply(1L), DecimalType.apply(1, 0)), right), type);
            return new If(new EqualTo(right, zero), failed, checked);
        }

        /** A type with more decimals than Spark would keep, or null if Spark keeps all of them. */
        private DecimalType widerType(DecimalType a, DecimalType b) {
            int before;
            int decimals;
            if (index == 2) {
                before = integerDigits(a) + integerDigits(b) + 1;
                decimals = a.scale() + b.scale();
            } else if (index == 3) {
                before = integerDigits(a) + b.scale();
                decimals = Math.max(6, a.scale() + b.precision() + 1);
            } else {
                before = Math.max(integerDigits(a), integerDigits(b)) + 1;
                decimals = Math.max(a.scale(), b.scale());
            }
            if (before + decimals <= MAX_DIGITS) return null;
            int sparkDecimals = Math.max(MAX_DIGITS - before, Math.min(decimals, 6));
            int exactDecimals = Math.min(decimals, MAX_DECIMALS);
            return exactDecimals > sparkDecimals ? DecimalType.apply(MAX_DIGITS, exactDecimals) : null;
        }

        private static int integerDigits(DecimalType type) {
            return type.precision() - type.scale();
        }

        private static DecimalType decimalType(Expression operand) {
            DataType type = operand.dataType();
            if (type instanceof DecimalType) return (DecimalType) type;
            return type instanceof IntegralType ? DecimalType$.MODULE$.forType(type) : null;
        }
    }

    /** Builds an expression without casts that raise errors. Its arguments have the casts that Spark adds. */
    private static final class TryCasts extends AbstractFunction1 {
        public Object apply(Object arguments) {
            return ((TreeNode) ((Seq) arguments).apply(0)).transform(new AnsiCast());
        }
    }

    private static final class AnsiCast extends scala.runtime.AbstractPartialFunction {
        public boolean isDefinedAt(Object expression) {
            return expression instanceof Cast && ((Cast) expression).evalMode().equals(EvalMode.ANSI());
        }

        public Object applyOrElse(Object expression, scala.Function1 otherwise) {
            if (!isDefinedAt(expression)) return otherwise.apply(expression);
            Cast cast = (Cast) expression;
            return new Cast(cast.child(), cast.dataType(), cast.timeZoneId(), EvalMode.TRY());
        }
    }

    /** Converts decimals to text without trailing zeros: 5 instead of 5.000000000000000000. */
    public static final class DecimalTextRule extends Rule {
        public TreeNode apply(TreeNode plan) {
            return (TreeNode) ((LogicalPlan) plan).transformAllExpressionsWithSubqueries(new DecimalToText());
        }
    }

    private static final class DecimalToText extends scala.runtime.AbstractPartialFunction {
        public boolean isDefinedAt(Object expression) {
            return expression instanceof Cast
                && ((Cast) expression).dataType() instanceof StringType
                && ((Cast) expression).child().dataType() instanceof DecimalType;
        }

        public Object applyOrElse(Object expression, scala.Function1 otherwise) {
            if (!isDefinedAt(expression)) return otherwise.apply(expression);
            DataType big = new ObjectType(BigDecimal.class);
            Expression number = invoke(((Cast) expression).child(), "toJavaBigDecimal", big, none());
            Expression stripped = invoke(number, "stripTrailingZeros", big, none());
            Expression text = invoke(stripped, "toPlainString", new ObjectType(String.class), none());
            return new StaticInvoke(
                UTF8String.class, ((Cast) expression).dataType(), "fromString", one(text), none(), true, true, true,
                Option.empty());
        }
    }

    private static NumericEvalContext tryContext() {
        return new NumericEvalContext(EvalMode.TRY(), SQLConf.get().decimalOperationsAllowPrecisionLoss());
    }

    private static Expression invoke(Expression target, String method, DataType type, Seq arguments) {
        return new Invoke(target, method, type, arguments, none(), true, true, true);
    }

    private static Expression cast(Expression expression, DataType type) {
        if (expression.dataType().equals(type)) return expression;
        return new Cast(expression, type, Option.empty(), EvalMode.fromSQLConf(SQLConf.get()));
    }

    private static Expression literal(Decimal value, DataType type) {
        DecimalType decimal = (DecimalType) type;
        value.changePrecision(decimal.precision(), decimal.scale());
        return new Literal(value, type);
    }

    private static String pretty(Expression expression) {
        return org.apache.spark.sql.catalyst.util.package$.MODULE$.toPrettySQL(expression, false);
    }

    private static Seq none() {
        return Nil$.MODULE$;
    }

    private static Seq one(Object item) {
        return new $colon$colon(item, Nil$.MODULE$);
    }
}
