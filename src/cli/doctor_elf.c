/* SPDX-License-Identifier: Apache-2.0 */
/* The heads of a program's file: what kind it is, and which loader it asks for. */
#include "cli/doctor.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    HEADS_MAX = 128,
    DYNAMIC_MAX = 4096, /* entries of the dynamic section */
};

/* Whether the dynamic section says that this is a program, not a library. */
static bool elf_is_pie(int fd, const Elf64_Phdr *head)
{
    Elf64_Dyn entry;
    for (size_t i = 0; i < DYNAMIC_MAX && (i + 1) * sizeof entry <= head->p_filesz; i++) {
        off_t at = (off_t)(head->p_offset + i * sizeof entry);
        if (pread(fd, &entry, sizeof entry, at) != (ssize_t)sizeof entry ||
            entry.d_tag == DT_NULL) {
            break;
        }
        if (entry.d_tag == DT_FLAGS_1) {
            return (entry.d_un.d_val & DF_1_PIE) != 0;
        }
    }
    return false;
}

static int elf_read_heads(int fd, const Elf64_Ehdr *file, enum tow_doctor_kind *ret_kind,
                          char *ret_loader)
{
    bool dynamic = false, pie = false;
    if (file->e_phentsize != sizeof(Elf64_Phdr) || file->e_phnum > HEADS_MAX) {
        return -ENOEXEC;
    }
    for (size_t i = 0; i < file->e_phnum; i++) {
        Elf64_Phdr head;
        off_t at = (off_t)(file->e_phoff + i * sizeof head);
        if (pread(fd, &head, sizeof head, at) != (ssize_t)sizeof head) {
            return -ENOEXEC;
        }
        if (head.p_type == PT_INTERP) {
            if (head.p_filesz < 2 || head.p_filesz > PATH_MAX ||
                pread(fd, ret_loader, head.p_filesz, (off_t)head.p_offset) !=
                    (ssize_t)head.p_filesz) {
                return -ENOEXEC;
            }
            ret_loader[head.p_filesz - 1] = '\0';
        } else if (head.p_type == PT_DYNAMIC) {
            dynamic = true;
            pie = elf_is_pie(fd, &head);
        }
    }
    if (ret_loader[0] != '\0') {
        *ret_kind = TOW_DOCTOR_PROGRAM;
    } else {
        *ret_kind =
            file->e_type == ET_DYN && dynamic && !pie ? TOW_DOCTOR_LIBRARY : TOW_DOCTOR_STATIC;
    }
    return 0;
}

int tow_doctor_elf_read(const char *path, enum tow_doctor_kind *ret_kind, char *ret_loader)
{
    static const unsigned char magic[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3};
#if defined(__aarch64__)
    const unsigned machine = EM_AARCH64;
#else
    const unsigned machine = EM_X86_64;
#endif
    Elf64_Ehdr file = {.e_type = 0};
    ret_loader[0] = '\0';
    *ret_kind = TOW_DOCTOR_NO_ELF;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    int error = 0;
    ssize_t n = pread(fd, &file, sizeof file, 0);
    if (n < 0) {
        error = -errno;
    } else if (n == (ssize_t)sizeof file && memcmp(file.e_ident, magic, sizeof magic) == 0) {
        if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_ident[EI_DATA] != ELFDATA2LSB ||
            file.e_machine != machine) {
            *ret_kind = TOW_DOCTOR_FOREIGN;
        } else {
            error = elf_read_heads(fd, &file, ret_kind, ret_loader);
        }
    }
    close(fd);
    return error;
}
