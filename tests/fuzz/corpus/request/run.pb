
x"abcdefg
d