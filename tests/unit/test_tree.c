/* SPDX-License-Identifier: Apache-2.0 */
/* The treap against a sorted list. */
#include "cmocka_all.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/tree.h"

enum { COUNT = 4096 };

static struct tow_node nodes[COUNT];
static bool there[COUNT];

/* What a walk through an array finds. */
static struct tow_node *expected(uint64_t key, bool floor)
{
    struct tow_node *best = NULL;
    for (int i = 0; i < COUNT; i++) {
        bool fits = there[i] && (floor ? nodes[i].key <= key : nodes[i].key >= key);
        if (fits && (best == NULL || (nodes[i].key > best->key) == floor)) {
            best = &nodes[i];
        }
    }
    return best;
}

static void it_finds_what_a_list_finds(void **state)
{
    (void)state;
    struct tow_tree tree = {0};
    srand(7);
    for (int i = 0; i < COUNT; i++) {
        nodes[i].key = (uint64_t)i * 16;
    }
    for (int round = 0; round < 20000; round++) {
        int i = rand() % COUNT;
        (there[i] ? tow_tree_remove : tow_tree_insert)(&tree, &nodes[i]);
        there[i] = !there[i];
        if (round % 50 == 0) {
            uint64_t key = (uint64_t)(rand() % (COUNT * 16 + 32));
            assert_ptr_equal(tow_tree_floor(&tree, key), expected(key, true));
            assert_ptr_equal(tow_tree_ceiling(&tree, key), expected(key, false));
        }
    }
    for (int i = 0; i < COUNT; i++) {
        if (there[i]) {
            tow_tree_remove(&tree, &nodes[i]);
            there[i] = false;
        }
    }
    assert_null(tree.root);
    assert_null(tow_tree_floor(&tree, UINT64_MAX));
    assert_null(tow_tree_ceiling(&tree, 0));
}

static int depth(const struct tow_node *node)
{
    int left = node != NULL ? depth(node->left) : 0, right = node != NULL ? depth(node->right) : 0;
    return node == NULL ? 0 : 1 + (left > right ? left : right);
}

/* Neighbours that come in their order, as addresses do. */
static void it_stays_low(void **state)
{
    (void)state;
    struct tow_tree tree = {0};
    for (int i = 0; i < COUNT; i++) {
        nodes[i].key = (uint64_t)i << 12;
        tow_tree_insert(&tree, &nodes[i]);
    }
    assert_in_range(depth(tree.root), 12, 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_finds_what_a_list_finds),
        cmocka_unit_test(it_stays_low),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
