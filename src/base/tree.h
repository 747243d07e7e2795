/* SPDX-License-Identifier: Apache-2.0 */
/* An ordered set of things by number, kept balanced by chance (a treap): for what lies at
 * addresses. The nodes are inside the things; nothing is allocated, and nothing is locked.
 */
#ifndef TOW_BASE_TREE_H
#define TOW_BASE_TREE_H

#include <stdint.h>

struct tow_node {
    uint64_t key; /* set by its owner; no two of a tree are equal */
    uint32_t priority;
    struct tow_node *left, *right;
};

/* All zeros is an empty one. */
struct tow_tree {
    struct tow_node *root;
    uint32_t chance;
};

void tow_tree_insert(struct tow_tree *tree, struct tow_node *node);
/* Takes a node out that is in it. */
void tow_tree_remove(struct tow_tree *tree, struct tow_node *node);

/* The node with the highest key that is at most `key`; NULL: there is none. */
struct tow_node *tow_tree_floor(const struct tow_tree *tree, uint64_t key);
/* The node with the lowest key that is at least `key`; NULL: there is none. */
struct tow_node *tow_tree_ceiling(const struct tow_tree *tree, uint64_t key);

#endif
