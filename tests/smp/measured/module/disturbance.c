/* A module that does nothing but be loaded. */
#include <linux/init.h>
#include <linux/module.h>

static int __init start(void)
{
    return 0;
}

static void __exit stop(void)
{
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("is loaded and unloaded, to disturb");
