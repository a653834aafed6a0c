# needs: python3
# any status: fettle lift
