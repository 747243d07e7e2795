/* SPDX-License-Identifier: Apache-2.0 */
/* `towlined token`: makes, lists and revokes tokens. */
#ifndef TOW_SERVER_TOKEN_H
#define TOW_SERVER_TOKEN_H

int tows_token_main(int argc, char **argv);

#endif
