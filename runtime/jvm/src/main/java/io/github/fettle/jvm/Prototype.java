package io.github.fettle.jvm;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Where the arguments of a C function come from. The translator writes it to the interfaces that it
 * makes of prototypes; a method without it has the arguments of the function.
 *
 * <p>A word for each argument of C: {@code 2} is Java's third argument; {@code u2} the same, a byte or
 * a short, without its sign; {@code <2} as a pointer that is only read; {@code #2} the length of that
 * array; {@code +CAPACITY} a pointer to an array that the function fills and the method returns, and
 * {@code +#} one to its length. A capacity is a number, or {@code function(3,4)}: what another
 * function says for those arguments. A first word {@code !} means that any result but zero is an
 * error.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface Prototype {
    String value();
}
