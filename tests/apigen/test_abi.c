/* SPDX-License-Identifier: Apache-2.0 */
/* Our types have the sizes, offsets and values that programs were compiled with. */
#include <stdio.h>

struct abi_row {
    const char *what;
    unsigned long long value;
};
const struct abi_row *abi_ours(unsigned *ret_count);
const struct abi_row *abi_theirs(unsigned *ret_count);

int main(void)
{
    unsigned count = 0, other = 0, wrong = 0;
    const struct abi_row *ours = abi_ours(&count), *theirs = abi_theirs(&other);
    if (count != other || count < 2000) {
        printf("the two tables have %u and %u rows\n", count, other);
        return 1;
    }
    for (unsigned i = 0; i < count; i++) {
        if (ours[i].value != theirs[i].value) {
            printf("%s: ours %llu, cuda.h %llu\n", ours[i].what, ours[i].value, theirs[i].value);
            wrong++;
        }
    }
    printf("%u facts compared, %u differ\n", count, wrong);
    return wrong != 0;
}
