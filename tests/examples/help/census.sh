# quick
# needs: git
# any status: fettle census --diff
mkdir -p src linux/kernel linux/mm
cat > src/a.c <<'C'
int a(void) { pthread_mutex_lock(&m); pthread_mutex_unlock(&m); return 0; }
C
printf '#ifdef CONFIG_SMP\nint b(void) { spin_lock(&l); spin_unlock(&l); }\n#endif\n' > linux/kernel/b.c
git -c init.defaultBranch=main init -q .
for tag in v1.0 v2.0 v3.0; do
	echo "int c_${tag%.0}(void) { down(&s); up(&s); }" >> linux/mm/c.c
	git add . && git -c user.name=A -c user.email=a@b commit -qm $tag && git tag $tag
done
