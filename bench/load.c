/* A closed-loop HTTP/1.1 load generator over a unix socket: N clients, each with one request in flight.
 *
 *   load -s SOCKET [-c CLIENTS] [-n REQUESTS] [-w WARMUP] [-m METHOD] [-t TARGET] [-b BODY_FILE] [-k]
 *
 * -k keeps connections alive; without it each request makes a connection of its own, as the Docker CLI does for a
 * command. Latency runs from the start of connect (or of the write, on a kept connection) to the last byte of the
 * response. Prints one JSON object; exits 1 when any request failed. Bounded by -n: it always stops by itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 16384, READ_MAX = 65536, IDLE_LIMIT_MS = 30000 };

enum phase { SENDING, HEAD, BODY, UNTIL_CLOSE, CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_END, TRAILER };

struct client {
    int fd;
    enum phase phase;
    size_t sent;
    uint64_t started_ns;
    uint64_t left;      /* bytes left of the body or of the chunk */
    size_t line;        /* length of the trailer line so far */
    int last_chunk, close_after, status;
    size_t head_len;
    char head[HEAD_MAX + 1];
};

static struct sockaddr_un address;
static char *request_bytes;
static size_t request_len;
static int keep_alive, epoll_fd;
static long to_start, warmup, finished, failed, not_2xx, total;
static uint64_t *latencies_ns, bytes_read, measured_from_ns;

static void die(const char *what) {
    perror(what);
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void drop(struct client *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void fail(struct client *c) {
    failed++;
    finished++;
    drop(c);
}

static void watch(struct client *c, uint32_t events, int operation) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, operation, c->fd, &event)) die("epoll_ctl");
}

static int try_send(struct client *c) {
    while (c->sent < request_len) {
        ssize_t n = send(c->fd, request_bytes + c->sent, request_len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(c, EPOLLOUT | EPOLLIN, EPOLL_CTL_MOD);
            return 1;
        }
        if (n < 0) return 0;
        c->sent += (size_t)n;
    }
    c->phase = HEAD;
    watch(c, EPOLLIN, EPOLL_CTL_MOD);
    return 1;
}

/* Starts the client's next request; does nothing when all are under way. */
static void begin(struct client *c) {
    while (to_start > 0) {
        to_start--;
        c->started_ns = now_ns();
        c->sent = 0;
        c->head_len = 0;
        c->last_chunk = c->close_after = 0;
        c->phase = SENDING;
        if (c->fd < 0) {
            c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (c->fd < 0) die("socket");
            /* A unix connect waits only for a full backlog; waiting is part of what is measured. */
            if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) {
                fail(c);
                continue;
            }
            fcntl(c->fd, F_SETFL, O_NONBLOCK);
            watch(c, EPOLLIN, EPOLL_CTL_ADD);
        }
        if (try_send(c)) return;
        fail(c);
    }
    drop(c);
}

static void complete(struct client *c) {
    uint64_t end = now_ns();
    if (finished >= warmup) {
        latencies_ns[finished - warmup] = end - c->started_ns;
    } else if (finished + 1 == warmup) {
        measured_from_ns = end;
    }
    finished++;
    if (c->status < 200 || c->status > 299) not_2xx++;
    if (!keep_alive || c->close_after) drop(c);
    begin(c);
}

static char *header(char *head, const char *name) {
    char *found = strcasestr(head, name);
    return found ? found + strlen(name) : NULL;
}

/* Reads the head once it is whole; returns the bytes of `data` that belong to it, or -1. */
static ssize_t take_head(struct client *c, const char *data, size_t len) {
    size_t before = c->head_len;
    size_t room = HEAD_MAX - before, copied = len < room ? len : room;
    memcpy(c->head + before, data, copied);
    c->head_len += copied;
    c->head[c->head_len] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return copied == len ? (ssize_t)len : -1;
    end[2] = 0;
    size_t used = (size_t)(end + 4 - c->head) - before;
    if (strncmp(c->head, "HTTP/1.", 7)) return -1;
    c->status = atoi(c->head + 9);
    char *value;
    if ((value = header(c->head, "\r\nconnection:")) && !strncasecmp(value + strspn(value, " "), "close", 5))
        c->close_after = 1;
    if ((value = header(c->head, "\r\ntransfer-encoding:"))) {
        c->phase = CHUNK_SIZE;
        c->left = 0;
    } else if ((value = header(c->head, "\r\ncontent-length:"))) {
        c->phase = BODY;
        c->left = strtoull(value, NULL, 10);
    } else if (c->status == 204 || c->status == 304) {
        c->phase = BODY;
        c->left = 0;
    } else {
        c->phase = UNTIL_CLOSE;
    }
    return (ssize_t)used;
}

static int hex(char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    ch |= 32;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* One byte of chunk framing; returns 1 when the body has ended, -1 when it is malformed. */
static int take_framing(struct client *c, char ch) {
    switch (c->phase) {
    case CHUNK_SIZE:
        if (hex(ch) >= 0) {
            c->left = c->left * 16 + (uint64_t)hex(ch);
            return 0;
        }
        c->phase = CHUNK_EXTENSION;
        /* fall through */
    case CHUNK_EXTENSION:
        if (ch == '\n') {
            c->last_chunk = c->left == 0;
            c->line = 0;
            c->phase = c->last_chunk ? TRAILER : CHUNK_DATA;
        }
        return 0;
    case CHUNK_END:
        if (ch == '\n') c->phase = CHUNK_SIZE;
        return 0;
    case TRAILER:
        if (ch == '\n') {
            if (c->line == 0) return 1;
            c->line = 0;
        } else if (ch != '\r') {
            c->line++;
        }
        return 0;
    default:
        return -1;
    }
}

/* Feeds response bytes; returns 1 when the response is whole, 0 for more, -1 when it is malformed. */
static int feed(struct client *c, const char *data, size_t len) {
    size_t at = 0;
    if (c->phase == HEAD) {
        ssize_t used = take_head(c, data, len);
        if (used < 0) return -1;
        at = (size_t)used;
        if (c->phase == BODY && c->left == 0) return 1;
    }
    while (at < len) {
        if (c->phase == UNTIL_CLOSE) return 0;
        if (c->phase == BODY || c->phase == CHUNK_DATA) {
            uint64_t part = len - at < c->left ? len - at : c->left;
            at += (size_t)part;
            c->left -= part;
            if (c->left == 0 && c->phase == BODY) return 1;
            if (c->left == 0) c->phase = CHUNK_END;
            continue;
        }
        int done = take_framing(c, data[at++]);
        if (done) return done;
    }
    return 0;
}

static void on_event(struct client *c, uint32_t events) {
    static char buffer[READ_MAX];
    if (c->phase == SENDING && (events & EPOLLOUT)) {
        if (!try_send(c)) {
            fail(c);
            begin(c);
        }
        return;
    }
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n > 0 && c->phase != SENDING) {
        bytes_read += (uint64_t)n;
        int done = feed(c, buffer, (size_t)n);
        if (done == 0) return;
        if (done == 1) {
            complete(c);
            return;
        }
    } else if (n == 0 && c->phase == UNTIL_CLOSE) {
        drop(c);
        complete(c);
        return;
    }
    fail(c);
    begin(c);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile_us(long count, double q) {
    return count ? (double)latencies_ns[(long)(q * (double)(count - 1))] / 1000.0 : 0;
}

static void build_request(const char *method, const char *target, const char *body_file) {
    char *body = NULL;
    size_t body_len = 0;
    if (body_file) {
        struct stat info;
        int fd = open(body_file, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &info)) die(body_file);
        body_len = (size_t)info.st_size;
        body = malloc(body_len + 1);
        if (!body || read(fd, body, body_len) != (ssize_t)body_len) die(body_file);
        close(fd);
    }
    const char *type = body ? "Content-Type: application/json\r\n" : "";
    char length[64] = "";
    if (body) snprintf(length, sizeof length, "Content-Length: %zu\r\n", body_len);
    char *head;
    int head_len = asprintf(&head, "%s %s HTTP/1.1\r\nHost: docker\r\nUser-Agent: bench\r\n%s%s%s\r\n", method, target,
                            type, length, keep_alive ? "" : "Connection: close\r\n");
    if (head_len < 0) die("asprintf");
    request_len = (size_t)head_len + body_len;
    request_bytes = malloc(request_len + 1);
    if (!request_bytes) die("malloc");
    memcpy(request_bytes, head, (size_t)head_len);
    if (body) memcpy(request_bytes + head_len, body, body_len);
    free(head);
    free(body);
}

int main(int argc, char **argv) {
    const char *socket_path = NULL, *method = "GET", *target = "/_ping", *body_file = NULL;
    long clients = 1, requests = 1000;
    for (int option; (option = getopt(argc, argv, "s:c:n:w:m:t:b:k")) != -1;) {
        switch (option) {
        case 's': socket_path = optarg; break;
        case 'c': clients = atol(optarg); break;
        case 'n': requests = atol(optarg); break;
        case 'w': warmup = atol(optarg); break;
        case 'm': method = optarg; break;
        case 't': target = optarg; break;
        case 'b': body_file = optarg; break;
        case 'k': keep_alive = 1; break;
        default: return 2;
        }
    }
    if (!socket_path || strlen(socket_path) >= sizeof address.sun_path || clients < 1 || requests < 1 || warmup < 0) {
        fprintf(stderr, "usage: load -s SOCKET [-c CLIENTS] [-n REQUESTS] [-w WARMUP] [-m METHOD] [-t TARGET] "
                        "[-b BODY_FILE] [-k]\n");
        return 2;
    }
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, socket_path);
    build_request(method, target, body_file);
    total = to_start = requests + warmup;
    latencies_ns = calloc((size_t)requests, sizeof *latencies_ns);
    struct client *all = calloc((size_t)clients, sizeof *all);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!latencies_ns || !all || epoll_fd < 0) die("setup");
    measured_from_ns = now_ns();
    for (long i = 0; i < clients; i++) {
        all[i].fd = -1;
        begin(&all[i]);
    }
    while (finished < total) {
        struct epoll_event events[256];
        int count = epoll_wait(epoll_fd, events, 256, IDLE_LIMIT_MS);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            fprintf(stderr, "load: nothing happened for %d s\n", IDLE_LIMIT_MS / 1000);
            failed += total - finished;
            break;
        }
        for (int i = 0; i < count; i++) {
            struct client *c = events[i].data.ptr;
            if (c->fd >= 0) on_event(c, events[i].events);
        }
    }
    double seconds = (double)(now_ns() - measured_from_ns) / 1e9;
    long measured = finished > warmup ? finished - warmup : 0;
    if (failed) measured = measured > failed ? measured - failed : 0;
    qsort(latencies_ns, (size_t)requests, sizeof *latencies_ns, by_value);
    printf("{\"requests\": %ld, \"failed\": %ld, \"not_2xx\": %ld, \"seconds\": %.6f, \"per_second\": %.1f, "
           "\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"bytes\": %llu}\n",
           measured, failed, not_2xx, seconds, seconds > 0 ? (double)measured / seconds : 0, quantile_us(requests, 0.5),
           quantile_us(requests, 0.9), quantile_us(requests, 0.99), quantile_us(requests, 1.0),
           (unsigned long long)bytes_read);
    return failed ? 1 : 0;
}
