program load
  implicit none
  integer, parameter :: n = 120
  real(8) :: a(n, n), b(n, n), c(n, n)
  integer :: i, j
  do j = 1, n
    do i = 1, n
      a(i, j) = mod(i * 31 + j * 17, 101) / 101d0
      b(i, j) = mod(i * 13 + j * 7, 89) / 89d0
    end do
  end do
  c = matmul(a, transpose(b))
  print '(3f14.6)', sum(c), maxval(c), c(7, 9)
  print '(i0)', fib(24)
contains
  recursive integer function fib(k) result(r)
    integer, intent(in) :: k
    if (k < 2) then
      r = k
    else
      r = fib(k - 1) + fib(k - 2)
    end if
  end function
end program
