/* Writes a receipt for an order of one line an item: name cents count */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RETRY = 75, PERMANENT = 65 };

int main(void) {
    char name[65];
    long cents, count, sum = 0;
    int items = 0, read;
    while ((read = scanf("%64s %ld %ld", name, &cents, &count)) == 3) {
        sum += cents * count;
        items++;
    }
    if (read != EOF) {
        fprintf(stderr, "item %d: expected a name, cents and a count\n", items + 1);
        return PERMANENT;
    }
    if (items == 0) {
        fprintf(stderr, "the order has no items\n");
        return PERMANENT;
    }
    unsigned char random[16];
    struct timespec now;
    if (getentropy(random, sizeof random) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0) {
        perror("no random numbers or no clock");
        return RETRY;
    }
    fprintf(stderr, "attempt %s of job %s\n", getenv("HOURHAND_ATTEMPT"), getenv("HOURHAND_ID"));
    printf("{\"cents\": %ld, \"receipt\": \"", sum);
    for (size_t i = 0; i < sizeof random; i++) printf("%02x", random[i]);
    printf("\", \"issued_ms\": %lld}\n", (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    return 0;
}
