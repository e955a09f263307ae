import java.math.BigDecimal;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAlias;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.CheckOverflow;
import org.apache.spark.sql.catalyst.expressions.Divide;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.ColumnNodeToExpressionConverter$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DecimalType$;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.$colon$colon;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Arithmetic with decimals that keeps its digits, and their text without zeros at the end.
 *
 * Spark makes room for the digits before the point that a result could have at most, and takes it from those after it:
 * of the product of two decimal(38,18) it keeps 6. Here the result keeps up to 18, as the numbers themselves do, and
 * one that is too large for that is an error. Spark's own compiler for generated code compiles this when it is
 * first needed; what it makes of a plan is expressions that every Spark has.
 */
public final class Exact {
    private static final int DIGITS = 38;
    private static final int AFTER_THE_POINT = 18;
    private static final String EXCLUDED = "spark.sql.optimizer.excludedRules";
    private static final String EARLY = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation";
    private static final String PREFIX = "penstock_exact_";
    private static final String[] OPERATORS = {"+", "-", "*", "/"};
    private static final String[] NAMES = {"add", "subtract", "multiply", "divide"};
    private static final String[] METHODS = {"$plus", "$minus", "$times", "$div"};

    /** The expression of an SQL text. */
    public Column column(SparkSession session, String text) throws Exception {
        return column(session, session.sessionState().sqlParser().parseExpression(text));
    }

    /** The same column, with operators that keep their digits. */
    public Column column(SparkSession session, Column column) {
        return column(session, ColumnNodeToExpressionConverter$.MODULE$.apply(column.node()));
    }

    private static Column column(SparkSession session, Expression given) {
        teach(session);
        return ExpressionUtils.column(new Expressions().of(given));
    }

    /** What a query gives. */
    public Dataset rows(SparkSession session, String query) throws Exception {
        teach(session);
        LogicalPlan plan = session.sessionState().sqlParser().parsePlan(query);
        return Dataset.ofRows(session, new Plans().of(plan));
    }

    /** Make known to a session, once, the functions that take the place of operators, and how decimals are spelt. */
    private static void teach(SparkSession session) {
        if (!session.sessionState().experimentalMethods().extraOptimizations().isEmpty()) return;
        for (int i = 0; i < NAMES.length; i++) {
            session.sessionState().functionRegistry().createOrReplaceTempFunction(
                PREFIX + NAMES[i], new Operator(i), "scala_udf");
        }
        session.sessionState().experimentalMethods().extraOptimizations_$eq(one(new Spelling()));
        // It computes what it can of small tables before the rule has seen them.
        String excluded = session.sessionState().conf().getConfString(EXCLUDED, "");
        session.sessionState().conf().setConfString(
            EXCLUDED, excluded.isEmpty() ? EARLY : EARLY + "," + excluded);
    }

    /** Plans before Spark has looked at them: every operator becomes a function of ours. */
    private static final class Plans extends AbstractFunction1 {
        public Object apply(Object plan) {
            return of((LogicalPlan) plan);
        }

        LogicalPlan of(LogicalPlan plan) {
            LogicalPlan inside = (LogicalPlan) ((TreeNode) plan).mapChildren(this);
            if (inside instanceof UnresolvedWith) {
                UnresolvedWith with = (UnresolvedWith) inside;
                Seq relations = (Seq) ((Seq) with.cteRelations()).map(new Relations());
                return new UnresolvedWith(with.child(), relations, with.allowRecursion());
            }
            return (LogicalPlan) inside.mapExpressions(new Expressions());
        }
    }

    /** What a WITH names. */
    private static final class Relations extends AbstractFunction1 {
        public Object apply(Object relation) {
            Tuple3 named = (Tuple3) relation;
            return new Tuple3(named._1(), new Plans().of((LogicalPlan) named._2()), named._3());
        }
    }

    private static final class Expressions extends AbstractFunction1 {
        public Object apply(Object expression) {
            return of((Expression) expression);
        }

        Expression of(Expression given) {
            Expression made = (Expression) ((TreeNode) given).mapChildren(this);
            if (made instanceof SubqueryExpression) {
                SubqueryExpression subquery = (SubqueryExpression) made;
                return (Expression) subquery.withNewPlan(new Plans().of((LogicalPlan) subquery.plan()));
            }
            if (made instanceof UnresolvedAlias && made != given) {
                Name name = new Name(pretty(((UnresolvedAlias) given).child()));
                return new UnresolvedAlias(((UnresolvedAlias) made).child(), Option.apply(name));
            }
            int place = operator(made);
            return place < 0 ? made : new UnresolvedFunction(
                one(PREFIX + NAMES[place]), made.children(), false, Option.empty(), Option.empty(), none(), false);
        }

        private static int operator(Expression given) {
            if (given instanceof Add) return 0;
            if (given instanceof Subtract) return 1;
            if (given instanceof Multiply) return 2;
            if (given instanceof Divide) return 3;
            if (given instanceof UnresolvedFunction && given.children().size() == 2) {
                UnresolvedFunction function = (UnresolvedFunction) given;
                for (int i = 0; i < OPERATORS.length; i++) {
                    if (function.nameParts().size() == 1 && function.nameParts().head().equals(OPERATORS[i])) return i;
                }
            }
            return -1;
        }
    }

    /** What a column is called that nobody has given a name: what Spark would call it, had it been left alone. */
    private static final class Name extends AbstractFunction1 {
        private final String written;

        Name(String written) {
            this.written = written;
        }

        public Object apply(Object expression) {
            return isOurs((Expression) expression) ? written : pretty((Expression) expression);
        }

        private static boolean isOurs(Expression expression) {
            if (expression instanceof Invoke) return true;
            for (int i = 0; i < expression.children().size(); i++) {
                if (isOurs((Expression) expression.children().apply(i))) return true;
            }
            return false;
        }
    }

    /** What an operator is once the types of its sides are known. */
    private static final class Operator extends AbstractFunction1 {
        private final int place;

        Operator(int place) {
            this.place = place;
        }

        public Object apply(Object sides) {
            Expression left = (Expression) ((Seq) sides).apply(0);
            Expression right = (Expression) ((Seq) sides).apply(1);
            DecimalType a = decimal(left);
            DecimalType b = decimal(right);
            boolean concerns = left.dataType() instanceof DecimalType || right.dataType() instanceof DecimalType;
            DecimalType type = concerns && a != null && b != null ? widened(a, b) : null;
            return type == null ? plain(left, right) : exact(as(left, a), as(right, b), type);
        }

        private Expression plain(Expression left, Expression right) {
            switch (place) {
                case 0: return new Add(left, right);
                case 1: return new Subtract(left, right);
                case 2: return new Multiply(left, right);
                default: return new Divide(left, right);
            }
        }

        private Expression exact(Expression left, Expression right, DecimalType type) {
            Expression made = invoke(left, METHODS[place], left.dataType(), one(right));
            Expression checked = new CheckOverflow(made, type, !SQLConf.get().ansiEnabled());
            if (place < 3) return checked;
            Expression zero = literal(Decimal.apply(0L), right.dataType());
            // Where it divides by zero, it says what Spark says.
            Expression failed = as(new Divide(literal(Decimal.apply(1L), DecimalType.apply(1, 0)), right), type);
            return new If(new EqualTo(right, zero), failed, checked);
        }

        /** The type that keeps more digits than Spark would, or null if Spark keeps what there is to keep. */
        private DecimalType widened(DecimalType a, DecimalType b) {
            int before;
            int after;
            if (place == 2) {
                before = whole(a) + whole(b) + 1;
                after = a.scale() + b.scale();
            } else if (place == 3) {
                before = whole(a) + b.scale();
                after = Math.max(6, a.scale() + b.precision() + 1);
            } else {
                before = Math.max(whole(a), whole(b)) + 1;
                after = Math.max(a.scale(), b.scale());
            }
            if (before + after <= DIGITS) return null;
            int kept = Math.max(DIGITS - before, Math.min(after, 6));
            int wanted = Math.min(after, AFTER_THE_POINT);
            return wanted > kept ? DecimalType.apply(DIGITS, wanted) : null;
        }

        private static int whole(DecimalType type) {
            return type.precision() - type.scale();
        }

        private static DecimalType decimal(Expression side) {
            DataType type = side.dataType();
            if (type instanceof DecimalType) return (DecimalType) type;
            return type instanceof IntegralType ? DecimalType$.MODULE$.forType(type) : null;
        }
    }

    /** A decimal as text: 5, and not 5.000000000000000000. */
    public static final class Spelling extends Rule {
        public TreeNode apply(TreeNode plan) {
            return (TreeNode) ((LogicalPlan) plan).transformAllExpressionsWithSubqueries(new Texts());
        }
    }

    private static final class Texts extends scala.runtime.AbstractPartialFunction {
        public boolean isDefinedAt(Object given) {
            return given instanceof Cast
                && ((Cast) given).dataType() instanceof StringType
                && ((Cast) given).child().dataType() instanceof DecimalType;
        }

        public Object applyOrElse(Object given, scala.Function1 otherwise) {
            if (!isDefinedAt(given)) return otherwise.apply(given);
            DataType big = new ObjectType(BigDecimal.class);
            Expression number = invoke(((Cast) given).child(), "toJavaBigDecimal", big, none());
            Expression bare = invoke(number, "stripTrailingZeros", big, none());
            Expression text = invoke(bare, "toPlainString", new ObjectType(String.class), none());
            return new StaticInvoke(
                UTF8String.class, ((Cast) given).dataType(), "fromString", one(text), none(), true, true, true,
                Option.empty());
        }
    }

    private static Expression invoke(Expression target, String method, DataType type, Seq arguments) {
        return new Invoke(target, method, type, arguments, none(), true, true, true);
    }

    private static Expression as(Expression given, DataType type) {
        if (given.dataType().equals(type)) return given;
        return new Cast(given, type, Option.empty(), EvalMode.fromSQLConf(SQLConf.get()));
    }

    private static Expression literal(Decimal value, DataType type) {
        DecimalType decimal = (DecimalType) type;
        value.changePrecision(decimal.precision(), decimal.scale());
        return new Literal(value, type);
    }

    private static String pretty(Expression given) {
        return org.apache.spark.sql.catalyst.util.package$.MODULE$.toPrettySQL(given, false);
    }

    private static Seq none() {
        return Nil$.MODULE$;
    }

    private static Seq one(Object item) {
        return new $colon$colon(item, Nil$.MODULE$);
    }
}
