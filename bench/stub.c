/* A stand-in for dockerd that answers at once, so that a benchmark shows what a proxy costs.
 *
 *   stub SOCKET
 *
 * One thread, epoll, HTTP/1.1 with keep-alive; bodies with a length or in chunks are read and dropped. It knows the
 * few requests that the benchmarks and the gate's look-ups make; anything else is 404. Ends on SIGTERM.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BUFFER = 65536 };

struct connection {
    int fd;
    size_t have;
    char data[BUFFER + 1];
};

struct answer {
    const char *method, *path; /* the path's end, after an optional /v1.NN; a '*' stands for one segment */
    int status;
    const char *type, *body; /* no body: a stream that begins, and in which nothing ever happens */
};

#define ID "4f1c2b7d9a3e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8"
#define ONE \
    "{\"Id\":\"" ID "\",\"Names\":[\"/app\"],\"Image\":\"bb:1\",\"ImageID\":\"sha256:" ID "\",\"Command\":\"sleep\"," \
    "\"Created\":1764460800,\"Ports\":[],\"Labels\":{\"com.docker.compose.project\":\"bench\"},\"State\":\"running\"," \
    "\"Status\":\"Up 2 hours\",\"HostConfig\":{\"NetworkMode\":\"bridge\"},\"NetworkSettings\":{\"Networks\":{}},\"Mounts\":[]}"
#define INSPECT \
    "{\"Id\":\"" ID "\",\"Name\":\"/app\",\"State\":{\"Status\":\"created\",\"Running\":false},\"Image\":\"sha256:" ID \
    "\",\"HostConfig\":{\"Privileged\":false,\"NetworkMode\":\"bridge\",\"Runtime\":\"runc\",\"Binds\":null," \
    "\"Devices\":[],\"DeviceRequests\":null},\"Mounts\":[],\"Config\":{\"Image\":\"bb:1\"}}"
#define INFO \
    "{\"ID\":\"bench\",\"ServerVersion\":\"28.5.2\",\"Driver\":\"overlay2\",\"DefaultRuntime\":\"runc\"," \
    "\"Runtimes\":{\"io.containerd.runc.v2\":{\"path\":\"runc\"},\"runc\":{\"path\":\"runc\"}}," \
    "\"ExperimentalBuild\":false,\"Swarm\":{\"LocalNodeState\":\"inactive\"},\"CDISpecDirs\":[]," \
    "\"SecurityOptions\":[\"name=seccomp,profile=builtin\"],\"OSType\":\"linux\"}"
#define VERSION \
    "{\"Version\":\"28.5.2\",\"ApiVersion\":\"1.51\",\"MinAPIVersion\":\"1.24\",\"Os\":\"linux\",\"Arch\":\"amd64\"}"

static const struct answer answers[] = {
    {"GET", "/_ping", 200, "text/plain; charset=utf-8", "OK"},
    {"HEAD", "/_ping", 200, "text/plain; charset=utf-8", ""},
    {"GET", "/containers/json", 200, "application/json", "[" ONE "," ONE "," ONE "]"},
    {"POST", "/containers/create", 201, "application/json", "{\"Id\":\"" ID "\",\"Warnings\":[]}"},
    {"GET", "/containers/*/json", 200, "application/json", INSPECT},
    {"POST", "/containers/*/start", 204, "application/json", ""},
    {"GET", "/images/*/json", 200, "application/json", "{\"Id\":\"sha256:" ID "\",\"Config\":{\"Volumes\":null}}"},
    {"GET", "/version", 200, "application/json", VERSION},
    {"GET", "/info", 200, "application/json", INFO},
    {"GET", "/events", 200, "application/json", NULL},
};
static const struct answer unknown = {"", "", 404, "application/json", "{\"message\":\"page not found\"}"};

static void die(const char *what) {
    perror(what);
    exit(2);
}

static int matches(const char *pattern, const char *path, size_t len) {
    const char *end = path + len;
    for (; *pattern && path < end; pattern++) {
        if (*pattern == '*') {
            while (path < end && *path != '/') path++;
        } else if (*pattern == *path) {
            path++;
        } else {
            return 0;
        }
    }
    return !*pattern && path == end;
}

static const struct answer *choose(const char *request) {
    const char *space = strchr(request, ' ');
    if (!space) return &unknown;
    const char *path = space + 1;
    size_t len = strcspn(path, " ?");
    if (len > 2 && path[0] == '/' && path[1] == 'v' && path[2] >= '0' && path[2] <= '9') {
        size_t prefix = 1 + strcspn(path + 1, "/ ?");
        path += prefix;
        len -= prefix;
    }
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        size_t method_len = strlen(answers[i].method);
        if ((size_t)(space - request) == method_len && !strncmp(request, answers[i].method, method_len) &&
            matches(answers[i].path, path, len))
            return &answers[i];
    }
    return &unknown;
}

/* Length of the chunked body that starts at `body`, or -1 while it is not whole. */
static ssize_t chunked_length(const char *body, size_t have) {
    size_t at = 0;
    for (;;) {
        const char *line_end = memmem(body + at, have - at, "\r\n", 2);
        if (!line_end) return -1;
        size_t size = strtoull(body + at, NULL, 16);
        at = (size_t)(line_end + 2 - body) + size + 2;
        if (at > have) return -1;
        if (size == 0) return (ssize_t)at;
    }
}

/* Answers the first request in the buffer; returns the bytes it took, 0 when it is not whole, -1 to close. */
static ssize_t serve(struct connection *c, int *close_after) {
    c->data[c->have] = 0;
    char *end = strstr(c->data, "\r\n\r\n");
    if (!end) return c->have == BUFFER ? -1 : 0;
    size_t head = (size_t)(end + 4 - c->data), body = 0;
    end[2] = 0; /* header searches stay inside the head */
    char *value = strcasestr(c->data, "\r\ncontent-length:");
    int chunked = strcasestr(c->data, "\r\ntransfer-encoding:") != NULL;
    if (value) body = strtoull(value + 17, NULL, 10);
    char *connection = strcasestr(c->data, "\r\nconnection:");
    *close_after = connection && !strncasecmp(connection + 13 + strspn(connection + 13, " "), "close", 5);
    const struct answer *answer = choose(c->data);
    end[2] = '\r';
    if (chunked) {
        ssize_t length = chunked_length(c->data + head, c->have - head);
        if (length < 0) return c->have == BUFFER ? -1 : 0;
        body = (size_t)length;
    }
    if (head + body > BUFFER) return -1;
    if (head + body > c->have) return 0;
    char out[8192], length[40] = "";
    if (!answer->body)
        strcpy(length, "Transfer-Encoding: chunked\r\n");
    else if (answer->status != 204)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(answer->body));
    int n = snprintf(out, sizeof out,
                     "HTTP/1.1 %d %s\r\nApi-Version: 1.51\r\nDocker-Experimental: false\r\nOstype: linux\r\n"
                     "Server: Docker/28.5.2 (linux)\r\nContent-Type: %s\r\n%s%s\r\n%s",
                     answer->status, answer->status < 300 ? "OK" : "Not Found", answer->type, length,
                     *close_after ? "Connection: close\r\n" : "", answer->body ? answer->body : "");
    /* Answers fit a socket buffer many times over, so a short write means that nobody reads. */
    if (n < 0 || (size_t)n >= sizeof out || send(c->fd, out, (size_t)n, MSG_NOSIGNAL) != n) return -1;
    return (ssize_t)(head + body);
}

static void drop(struct connection *c) {
    close(c->fd);
    free(c);
}

static void on_readable(struct connection *c) {
    ssize_t n = recv(c->fd, c->data + c->have, BUFFER - c->have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        drop(c);
        return;
    }
    c->have += (size_t)n;
    for (;;) {
        int close_after = 0;
        ssize_t used = c->have ? serve(c, &close_after) : 0;
        if (used == 0) return;
        if (used < 0 || close_after) {
            drop(c);
            return;
        }
        c->have -= (size_t)used;
        memmove(c->data, c->data + used, c->have);
    }
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: stub SOCKET\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    strcpy(address.sun_path, argv[1]);
    unlink(argv[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (listener < 0 || poll_fd < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) ||
        listen(listener, 1024))
        die(argv[1]);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &event)) die("epoll_ctl");
    for (;;) {
        struct epoll_event events[256];
        int count = epoll_wait(poll_fd, events, 256, -1);
        if (count < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr) {
                on_readable(events[i].data.ptr);
                continue;
            }
            for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
                struct connection *c = malloc(sizeof *c);
                if (!c) die("malloc");
                c->fd = fd;
                c->have = 0;
                event.data.ptr = c;
                if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
            }
        }
    }
}
