#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
static int l;
static void*serve(void*x){char b[64];int c=accept(l,0,0);for(int i=0;i<3;i++){int n=recv(c,b,64,0);int f=open("/etc/hostname",O_RDONLY);read(f,b+32,32);close(f);send(c,b,n+1,0);}close(c);return 0;}
int main(){struct sockaddr_in a={.sin_family=AF_INET,.sin_port=htons(18998)};inet_pton(AF_INET,"127.0.0.1",&a.sin_addr);l=socket(AF_INET,SOCK_STREAM,0);int o=1;setsockopt(l,SOL_SOCKET,SO_REUSEADDR,&o,4);bind(l,(void*)&a,sizeof a);listen(l,5);pthread_t t;pthread_create(&t,0,serve,0);
int c=socket(AF_INET,SOCK_STREAM,0);connect(c,(void*)&a,sizeof a);char b[64];for(int i=0;i<3;i++){send(c,"ask",3,0);recv(c,b,64,0);}close(c);pthread_join(t,0);
int p[2];pipe(p);if(fork()==0){write(p[1],"x",1);_exit(3);}wait(0);read(p[0],b,1);return 0;}
