package io.github.fettle.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Random;
import org.junit.jupiter.api.Test;

final class DemanglerTest {
    @Test
    void names() {
        assertEquals("std::runtime_error", Demangler.type("St13runtime_error"));
        assertEquals("int", Demangler.type("i"));
        assertEquals("char const*", Demangler.type("PKc"));
        assertEquals("My", Demangler.type("2My"));
        assertEquals("a::b::C", Demangler.type("N1a1b1CE"));
        assertEquals("std::filesystem::error", Demangler.type("NSt10filesystem5errorE"));
        assertEquals("Box<int, Box<char> >", Demangler.type("3BoxIiS_IcEE".replace("S_", "3Box")));
        assertEquals("(anonymous namespace)::E", Demangler.type("N12_GLOBAL__N_11EE"));
    }

    @Test
    void unknownOnesStayAsTheyAre() {
        assertEquals("FivE", Demangler.type("FivE"));
        assertEquals("99x", Demangler.type("99x"));
        assertEquals("", Demangler.type(""));
    }

    @Test
    void neverFails() {
        Random random = new Random(2);
        String letters = "NStEIPKi19_bZ";
        for (int i = 0; i < 50_000; i++) {
            StringBuilder text = new StringBuilder();
            for (int length = random.nextInt(12); length > 0; length--) {
                text.append(letters.charAt(random.nextInt(letters.length())));
            }
            Demangler.type(text.toString());
        }
    }
}
