/* SPDX-License-Identifier: Apache-2.0 */
/* The treap: insertion, removal and search by number, without recursion into the things it holds.
 */
#include "base/tree.h"

#include <stddef.h>

void tow_tree_insert(struct tow_tree *tree, struct tow_node *node)
{
    /* Numbers as good as random, which no key can choose. */
    uint32_t x = tree->chance += 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    node->priority = x ^ x >> 16;
    struct tow_node **at = &tree->root;
    while (*at != NULL && (*at)->priority >= node->priority) {
        at = node->key < (*at)->key ? &(*at)->left : &(*at)->right;
    }
    /* What was there comes below it, split by its key. */
    struct tow_node *rest = *at, **below = &node->left, **above = &node->right;
    *at = node;
    while (rest != NULL) {
        if (rest->key < node->key) {
            *below = rest;
            below = &rest->right;
            rest = rest->right;
        } else {
            *above = rest;
            above = &rest->left;
            rest = rest->left;
        }
    }
    *below = *above = NULL;
}

void tow_tree_remove(struct tow_tree *tree, struct tow_node *node)
{
    struct tow_node **at = &tree->root;
    while (*at != node) {
        at = node->key < (*at)->key ? &(*at)->left : &(*at)->right;
    }
    struct tow_node *low = node->left, *high = node->right;
    while (low != NULL && high != NULL) {
        if (low->priority >= high->priority) {
            *at = low;
            at = &low->right;
            low = low->right;
        } else {
            *at = high;
            at = &high->left;
            high = high->left;
        }
    }
    *at = low != NULL ? low : high;
}

struct tow_node *tow_tree_floor(const struct tow_tree *tree, uint64_t key)
{
    struct tow_node *best = NULL, *node = tree->root;
    while (node != NULL) {
        if (node->key <= key) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

struct tow_node *tow_tree_ceiling(const struct tow_tree *tree, uint64_t key)
{
    struct tow_node *best = NULL, *node = tree->root;
    while (node != NULL) {
        if (node->key >= key) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}
