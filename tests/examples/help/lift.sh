# needs: python3
