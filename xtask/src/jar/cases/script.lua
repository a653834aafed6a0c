local t={} for i=1,200000 do t[i]=(i*7919)%100003 end table.sort(t)
print(t[1],t[1000],#t, string.format("%.14g %5.2f %x", math.pi, 1e10/3, 255))
local s={} for w in ("the quick brown fox jumps"):gmatch("%a+") do s[#s+1]=w:reverse() end print(table.concat(s," "))
print((pcall(function() error({code=42}) end))); print(select(2,pcall(error,"x",0)))
local co=coroutine.wrap(function(a) for i=1,3 do a=coroutine.yield(a*i) end return "done" end) print(co(5),co(6),co(7),co(8))
print(os.time{year=2020,month=1,day=1,hour=12}, 7//2, -7//2, 7%-3, 1e15, 2^53, 10/3, math.maxinteger, 1<<62, "10"+5)
local f=assert(io.open("o.txt","w")) f:write("hello\n",1.5,"\n") f:close() for l in io.lines("o.txt") do print(l) end
print(string.pack("<i4d",7,1.25):byte(1,-1)); print(load("return 1+1")()) goto x ::x:: print(collectgarbage("count")>0)
