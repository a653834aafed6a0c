"""The extension is C over fettle.h, by Python's limited API: one build serves every Python from 3.8 on."""
import os

from setuptools import Extension, setup

HERE = os.path.dirname(os.path.abspath(__file__))

setup(
    ext_modules=[
        Extension(
            "fettle._sensor",
            ["fettle/_sensor.c"],
            include_dirs=[os.environ.get("FETTLE_INCLUDE", os.path.join(HERE, ".."))],
            define_macros=[("Py_LIMITED_API", "0x03080000")],
            extra_compile_args=["-O2", "-std=c99"],
            py_limited_api=True,
        )
    ],
)
