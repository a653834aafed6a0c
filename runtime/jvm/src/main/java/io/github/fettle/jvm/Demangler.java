package io.github.fettle.jvm;

/** The names of types that exceptions have, as C++ writes them. */
final class Demangler {
    private static final String BUILTIN = "vbcahstijlmxynofdegz";
    private static final String[] BUILTIN_NAMES = {
        "void", "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int",
        "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "__int128",
        "unsigned __int128", "float", "double", "long double", "__float128", "...",
    };

    private final String text;
    private int at;

    private Demangler(String text) {
        this.text = text;
    }

    /** The name, or what was given where it uses more than this knows. */
    static String type(String mangled) {
        String plain = mangled.startsWith("*") ? mangled.substring(1) : mangled;
        Demangler demangler = new Demangler(plain);
        String name = demangler.type();
        return name == null || demangler.at != plain.length() ? plain : name;
    }

    private String type() {
        if (at >= text.length()) {
            return null;
        }
        char c = text.charAt(at);
        if (Character.isDigit(c)) {
            return withArguments(source());
        }
        int builtin = BUILTIN.indexOf(c);
        if (builtin >= 0) {
            at++;
            return BUILTIN_NAMES[builtin];
        }
        at++;
        switch (c) {
            case 'P':
                return suffixed("*");
            case 'R':
                return suffixed("&");
            case 'K':
                return suffixed(" const");
            case 'N':
                return nested();
            case 'S':
                return standard();
            default:
                return null;
        }
    }

    private String suffixed(String suffix) {
        String inner = type();
        return inner == null ? null : inner + suffix;
    }

    private String source() {
        int length = 0;
        while (at < text.length() && Character.isDigit(text.charAt(at)) && length < text.length()) {
            length = length * 10 + text.charAt(at++) - '0';
        }
        if (length > text.length() - at) {
            return null;
        }
        String name = text.substring(at, at + length);
        at += length;
        return name.startsWith("_GLOBAL__N") ? "(anonymous namespace)" : name;
    }

    private String withArguments(String name) {
        if (name == null || at >= text.length() || text.charAt(at) != 'I') {
            return name;
        }
        at++;
        StringBuilder all = new StringBuilder(name).append('<');
        String separator = "";
        while (at < text.length() && text.charAt(at) != 'E') {
            String argument = type();
            if (argument == null) {
                return null;
            }
            all.append(separator).append(argument);
            separator = ", ";
        }
        at++;
        return all.append(all.charAt(all.length() - 1) == '>' ? " >" : ">").toString();
    }

    private String nested() {
        StringBuilder all = new StringBuilder();
        while (at < text.length() && text.charAt(at) != 'E') {
            String part;
            if (text.startsWith("St", at)) {
                at += 2;
                part = "std";
            } else if (Character.isDigit(text.charAt(at))) {
                part = withArguments(source());
            } else {
                return null;
            }
            if (part == null) {
                return null;
            }
            all.append(all.length() == 0 ? "" : "::").append(part);
        }
        at++;
        return all.toString();
    }

    private String standard() {
        if (at < text.length() && text.charAt(at) == 't') {
            at++;
            String name = at < text.length() && Character.isDigit(text.charAt(at))
                    ? withArguments(source())
                    : null;
            return name == null ? null : "std::" + name;
        }
        if (at < text.length() && text.charAt(at) == 's') {
            at++;
            return "std::string";
        }
        return null;
    }
}
